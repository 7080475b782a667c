"""The status server answers what it promises, to those who may ask."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from connector.config.loading import Config
from connector.core.partitions import CutPartition, PartitionGraph
from connector.core.timestamps import SECOND
from connector.log import configure
from connector.telemetry.metrics import ReaderMetrics
from connector.telemetry.server import serving
from tests.connector.builders import AT
