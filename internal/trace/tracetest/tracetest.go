// Package tracetest implements a collector of OpenTelemetry traces for tests. It accepts
// OTLP over HTTP.
package tracetest

import (
	"compress/gzip"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a received span.
type Span struct {
	Trace, ID, Parent string // hexadecimal; Parent is "" for the first span of a trace
	Name              string
	Service           string
	Failed            bool
	Attributes        map[string]string
}

// Collector stores the spans that it receives. It is safe for concurrent use.
type Collector struct {
	URL string // value of OTEL_EXPORTER_OTLP_ENDPOINT

	mu    sync.Mutex
	spans []Span
	more  chan struct{} // closed when spans arrive
}

// New starts a collector, which runs until the test ends.
func New(tb testing.TB) *Collector {
	tb.Helper()
	c := &Collector{more: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.take(r); err != nil {
			tb.Errorf("request to the collector: %v", err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	tb.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

// Env returns environment variables that make a server send its spans to this collector without
// delay.
func (c *Collector) Env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_BSP_SCHEDULE_DELAY=20"}
}

func (c *Collector) take(r *http.Request) error {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
		return fmt.Errorf("%s %s of %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return err
		}
		body = unpacked
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var in collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &in); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range in.GetResourceSpans() {
		service := attributes(of.GetResource().GetAttributes())["service.name"]
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, Span{
					Trace: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
					Name: s.GetName(), Service: service, Failed: s.GetStatus().GetCode() == 2, Attributes: attributes(s.GetAttributes()),
				})
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
	return nil
}

func attributes(list []*common.KeyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		if n, ok := kv.GetValue().GetValue().(*common.AnyValue_IntValue); ok {
			out[kv.GetKey()] = fmt.Sprint(n.IntValue)
			continue
		}
		out[kv.GetKey()] = kv.GetValue().GetStringValue()
	}
	return out
}

// Await waits until the trace has spans with these paths (see [Paths]) and returns its
// spans. The test fails if they do not arrive.
func (c *Collector) Await(tb testing.TB, trace string, paths ...string) []Span {
	tb.Helper()
	timeout := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		spans, more := slices.DeleteFunc(slices.Clone(c.spans), func(s Span) bool { return s.Trace != trace }), c.more
		c.mu.Unlock()
		have := Paths(spans)
		missing := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return slices.Contains(have, p) })
		if len(missing) == 0 {
			return spans
		}
		select {
		case <-more:
		case <-timeout:
			tb.Fatalf("spans %q are missing; the trace contains\n%s", missing, strings.Join(have, "\n"))
		}
	}
}

// Paths returns the path of each span, sorted. A path consists of the names of the span's
// ancestors and its own name, separated by " > ".
func Paths(spans []Span) (out []string) {
	byID := map[string]*Span{}
	for i := range spans {
		byID[spans[i].ID] = &spans[i]
	}
	for i := range spans {
		path := spans[i].Name
		for s := byID[spans[i].Parent]; s != nil; s = byID[s.Parent] {
			path = s.Name + " > " + path
		}
		out = append(out, path)
	}
	slices.Sort(out)
	return out
}
