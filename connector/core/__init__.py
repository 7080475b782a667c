"""The pure core: records, partitions, the watermark, the cut and epochs. No clock, no I/O, no asyncio."""
