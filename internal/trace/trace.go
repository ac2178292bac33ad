// Package trace has servers tell an OpenTelemetry collector where the time of a
// request went, if they are told of one: by OTEL_EXPORTER_OTLP_ENDPOINT and the other
// variables of its specification.
//
// A [Tracer] begins traces, or goes on with those of others ([Tracer.Request],
// [Tracer.Handler]); within them [Start] makes spans. Who is not traced pays for a
// look into a context. Between servers a trace travels in the query of a request
// ([Query]), which every fabric passes on as it is, and to machines in the headers of
// W3C Trace Context.
package trace

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otrace "go.opentelemetry.io/otel/trace"
)

// scope names who makes the spans.
const scope = "github.com/bourse-dev/bourse"

// Config says whose spans they are.
type Config struct {
	Service string // "bourse-proxy"
	ID      string // of the server
	Region  string
	Version string
	Getenv  func(string) string
	Log     *slog.Logger
}

// Tracer makes traces. A nil one makes none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   otrace.Tracer
}

// Open returns a tracer whose spans go to the collector that the environment names,
// over HTTP; nil if it names none. It connects to no one yet.
func Open(ctx context.Context, c Config) (*Tracer, error) {
	if c.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && c.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" || c.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nil, nil
	}
	to, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, err
	}
	of, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", c.Service), attribute.String("service.instance.id", c.ID),
		attribute.String("service.version", c.Version), attribute.String("cloud.region", c.Region),
	), resource.WithFromEnv()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say better
	if err != nil {
		return nil, errors.Join(err, to.Shutdown(ctx))
	}
	// The library has no other place for what goes wrong while it exports.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("export traces failed", slog.Any("err", err)) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(of))
	return &Tracer{p, p.Tracer(scope)}, nil
}

// closeTime bounds what a server that ends waits for the collector.
const closeTime = 3 * time.Second

// Close sends what was not sent yet.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// w3c is how a trace is written: https://www.w3.org/TR/trace-context.
var w3c propagation.TraceContext

// Request begins the span of a request that came, in the trace that its headers name
// or in a new one.
func (t *Tracer) Request(ctx context.Context, h http.Header, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(w3c.Extract(ctx, propagation.HeaderCarrier(h)), name, otrace.WithSpanKind(otrace.SpanKindServer))
	return ctx, Span{s}
}

// Handler makes a span of each request that is part of a trace, by its query or its
// headers: with the name of its path where servers ask each other, else "api".
func (t *Tracer) Handler(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := textIn(r.URL.RawQuery); text != "" {
			r.Header.Set("Traceparent", text)
		}
		if !otrace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.HeaderCarrier(r.Header))).IsValid() {
			h.ServeHTTP(w, r)
			return
		}
		name := "api" // clients choose other paths
		for _, ours := range []string{"/worker/", "/proxy/"} {
			if strings.HasPrefix(r.URL.Path, ours) {
				name = r.URL.Path[1:]
			}
		}
		ctx, s := t.Request(r.Context(), r.Header, name)
		s.Set("url.path", r.URL.Path)
		defer s.End(nil)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// param is the parameter of a query that has the trace.
const param = "traceparent"

// Query returns the query that has a request be part of the trace of ctx, beginning
// with "?"; "" when there is none.
func Query(ctx context.Context) string {
	if !otrace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	h := propagation.MapCarrier{}
	w3c.Inject(ctx, h)
	return "?" + param + "=" + h[param]
}

// textIn returns the trace of a query.
func textIn(query string) string {
	if !strings.Contains(query, param+"=") {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	return values.Get(param)
}

// Into writes the trace of ctx into the headers of a request.
func Into(ctx context.Context, h http.Header) { w3c.Inject(ctx, propagation.HeaderCarrier(h)) }

// Start begins a span within that of ctx, if it has one.
func Start(ctx context.Context, name string) (context.Context, Span) {
	in := otrace.SpanFromContext(ctx)
	if !in.IsRecording() {
		return ctx, Span{}
	}
	ctx, s := in.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, Span{s}
}

// Span is a part of a trace. The zero Span is of none.
type Span struct{ span otrace.Span }

// On reports whether the span is recorded.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// Set notes something of the span. An empty value is not noted.
func (s Span) Set(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt notes a number.
func (s Span) SetInt(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// End ends the span: it has failed with err, or done what it was for. It may be
// called twice.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
