// Command host plays Conduit's part towards one connector plugin, with Conduit's own client package, so that tests see
// exactly what Conduit would make of a plugin: its handshake, its specification, its records, its errors.
//
// It reads commands from stdin and writes answers to stdout, each a JSON object on a line of its own; go_host.py
// lists them. The plugin's log and go-plugin's own go to stderr, in lines such as
// "[INFO]  plugin.spanner-cdc: text: key=value".
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"

	"github.com/conduitio/conduit-commons/config"
	"github.com/conduitio/conduit-commons/opencdc"
	"github.com/conduitio/conduit-connector-protocol/pconnector"
	"github.com/conduitio/conduit-connector-protocol/pconnector/client"
	"github.com/conduitio/conduit-connector-protocol/pconnutils"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
)

type command struct {
	Do       string            `json:"do"`
	Config   map[string]string `json:"config"`
	Before   map[string]string `json:"before"`   // of "updated": the configuration that was
	Position []byte            `json:"position"` // of "open": base64
	Acks     *bool             `json:"acks"`     // of "run": false leaves the acknowledgements to "ack"
	Count    int               `json:"count"`    // of "ack"
}

type answer map[string]any

type specification struct {
	Name         string            `json:"name"`
	Summary      string            `json:"summary"`
	Description  string            `json:"description"`
	Version      string            `json:"version"`
	Author       string            `json:"author"`
	SourceParams config.Parameters `json:"source_params"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: host PLUGIN_PATH")
		os.Exit(2)
	}
	commands := json.NewDecoder(os.Stdin)
	nothing, err := os.Open(os.DevNull)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Stdin = nothing // go-plugin hands it to the plugin, which could take commands away

	host, err := newHost(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for {
		var next command
		err := commands.Decode(&next)
		if err == io.EOF || err == nil && next.Do == "kill" {
			break
		}
		if err != nil {
			host.print(answer{"error": err.Error(), "of": "input"})
			break
		}
		if err := host.do(next); err != nil {
			host.print(answer{"error": err.Error(), "of": next.Do})
		}
	}
	host.kill()
}

// sourcePlugin is what the client package dispenses as a source, and what Conduit takes it for.
type sourcePlugin interface {
	pconnector.SourcePlugin
	NewStream() pconnector.SourceRunStream
}

type host struct {
	out     sync.Mutex
	printer *json.Encoder
	client  *plugin.Client
	process *exec.Cmd
	source  sourcePlugin
	run     *run
	killing atomic.Bool
	schemas *registry
}

// run is one call of the plugin's Run.
type run struct {
	stream pconnector.SourceRunStreamClient
	cancel context.CancelFunc
	ended  chan struct{}

	lock    sync.Mutex // guards what follows, and sending
	pending []opencdc.Position
}

// newHost sets up the plugin as Conduit does, but does not start it: the first command does.
func newHost(path string) (*host, error) {
	h := &host{printer: json.NewEncoder(os.Stdout)}
	logger := hclog.New(&hclog.LoggerOptions{
		Name: "plugin", Level: hclog.Trace, Output: os.Stderr, DisableTime: true,
	})
	schemas, target, err := serveRegistry()
	if err != nil {
		return nil, err
	}
	h.schemas = schemas
	h.client, err = client.New(
		pluginLogger{logger}, path,
		client.WithEnvVar(pconnutils.EnvConduitConnectorUtilitiesGRPCTarget, target),
		client.WithEnvVar(pconnutils.EnvConduitConnectorToken, token),
		client.WithEnvVar(pconnector.EnvConduitConnectorID, "pipeline:source"),
		client.WithEnvVar(pconnector.EnvConduitConnectorLogLevel, "debug"),
		client.WithEnvVar(pconnector.EnvConduitConnectorMaxReceiveRecordSize, "4194304"),
		processOption{&h.process},
	)
	return h, err
}

// pluginLogger fills in the options that the client package leaves out and that hclog's own logger cannot do without.
type pluginLogger struct{ hclog.Logger }

func (l pluginLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return l.Logger.StandardWriter(&hclog.StandardLoggerOptions{})
}

func (l pluginLogger) Named(name string) hclog.Logger { return pluginLogger{l.Logger.Named(name)} }

// processOption keeps the plugin's process, of which the client tells too little once it has ended.
type processOption struct{ kept **exec.Cmd }

func (o processOption) ApplyOption(config *plugin.ClientConfig) error {
	*o.kept = config.Cmd
	return nil
}

func (h *host) print(a answer) {
	h.out.Lock()
	defer h.out.Unlock()
	if err := h.printer.Encode(a); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (h *host) do(c command) error {
	ctx := context.Background()
	if c.Do == "specify" {
		return h.specify(ctx)
	}
	source, err := h.startedSource()
	if err != nil {
		return err
	}
	switch c.Do {
	case "configure":
		_, err = source.Configure(ctx, pconnector.SourceConfigureRequest{Config: c.Config})
	case "created":
		_, err = source.LifecycleOnCreated(ctx, pconnector.SourceLifecycleOnCreatedRequest{Config: c.Config})
	case "updated":
		request := pconnector.SourceLifecycleOnUpdatedRequest{ConfigBefore: c.Before, ConfigAfter: c.Config}
		_, err = source.LifecycleOnUpdated(ctx, request)
	case "deleted":
		_, err = source.LifecycleOnDeleted(ctx, pconnector.SourceLifecycleOnDeletedRequest{Config: c.Config})
	case "open":
		_, err = source.Open(ctx, pconnector.SourceOpenRequest{Position: c.Position})
	case "run":
		return h.start(ctx, c.Acks == nil || *c.Acks) // its answer comes at its end
	case "ack":
		err = h.acknowledge(c.Count)
	case "stop":
		response, err := source.Stop(ctx, pconnector.SourceStopRequest{})
		if err == nil {
			h.print(answer{"stopped": base64.StdEncoding.EncodeToString(response.LastPosition)})
		}
		return err
	case "teardown":
		h.cancelRun()
		_, err = source.Teardown(ctx, pconnector.SourceTeardownRequest{})
	default:
		err = errors.New("no such command")
	}
	if err == nil {
		h.print(answer{"done": c.Do})
	}
	return err
}

// dispense starts the plugin if it does not run yet, and gives one of its parts.
func dispense[T any](h *host, name string) (part T, err error) {
	protocol, err := h.client.Client()
	if err != nil {
		return part, err
	}
	raw, err := protocol.Dispense(name)
	if err != nil {
		return part, err
	}
	return raw.(T), nil
}

func (h *host) specify(ctx context.Context) error {
	specifier, err := dispense[pconnector.SpecifierPlugin](h, "specifier")
	if err != nil {
		return err
	}
	response, err := specifier.Specify(ctx, pconnector.SpecifierSpecifyRequest{})
	if err != nil {
		return err
	}
	s := response.Specification
	h.print(answer{"specification": specification{
		s.Name, s.Summary, s.Description, s.Version, s.Author, s.SourceParams,
	}})
	return nil
}

func (h *host) startedSource() (_ sourcePlugin, err error) {
	if h.source == nil {
		h.source, err = dispense[sourcePlugin](h, "source")
	}
	return h.source, err
}

func (h *host) start(ctx context.Context, acks bool) error {
	if h.run != nil {
		return errors.New("run was called already")
	}
	ctx, cancel := context.WithCancel(ctx)
	stream := h.source.NewStream()
	if err := h.source.Run(ctx, stream); err != nil {
		cancel()
		return err
	}
	h.run = &run{stream: stream.Client(), cancel: cancel, ended: make(chan struct{})}
	go h.receive(ctx, h.run, acks)
	return nil
}

// receive prints the records of a run until it ends; its end is no news if this host has caused it.
func (h *host) receive(ctx context.Context, r *run, acks bool) {
	defer close(r.ended)
	for {
		response, err := r.stream.Recv()
		switch {
		case err == nil:
		case ctx.Err() != nil || h.killing.Load():
			return
		case errors.Is(err, io.EOF):
			h.print(answer{"done": "run"})
			return
		default:
			h.print(answer{"error": err.Error(), "of": "run"})
			return
		}
		r.lock.Lock()
		for _, record := range response.Records {
			r.pending = append(r.pending, record.Position)
		}
		r.lock.Unlock()
		for _, record := range response.Records {
			if err := h.schemas.decode(&record); err != nil {
				h.print(answer{"error": err.Error(), "of": "schema"})
				return
			}
			h.print(answer{"record": json.RawMessage(record.Bytes())})
		}
		if acks {
			if err := h.acknowledge(len(response.Records)); err != nil && ctx.Err() == nil && !h.killing.Load() {
				h.print(answer{"error": err.Error(), "of": "ack"})
			}
		}
	}
}

// acknowledge acknowledges the oldest records that are not acknowledged yet, in one message.
func (h *host) acknowledge(count int) error {
	if h.run == nil {
		return errors.New("nothing runs")
	}
	h.run.lock.Lock()
	defer h.run.lock.Unlock()
	if count > len(h.run.pending) {
		return fmt.Errorf("%d records wait for an acknowledgement", len(h.run.pending))
	}
	err := h.run.stream.Send(pconnector.SourceRunRequest{AckPositions: h.run.pending[:count]})
	if err == nil {
		h.run.pending = h.run.pending[count:]
	}
	return err
}

// cancelRun ends the plugin's Run as Conduit does before a teardown.
func (h *host) cancelRun() {
	if h.run != nil {
		h.run.cancel()
		<-h.run.ended
		h.run = nil
	}
}

// kill lets the plugin shut down by itself; go-plugin kills it if that takes more than two seconds.
func (h *host) kill() {
	h.killing.Store(true)
	h.client.Kill()
	status := ""
	if h.process.ProcessState != nil {
		status = h.process.ProcessState.String()
	}
	h.print(answer{"exited": h.client.Exited(), "status": status})
}
