// Package trace sends traces of requests to an OpenTelemetry collector, if one is configured with
// OTEL_EXPORTER_OTLP_ENDPOINT or another environment variable of the OpenTelemetry specification.
//
// A [Tracer] begins traces or continues those of clients ([Tracer.Request], [Tracer.Handler]), and
// [Start] begins spans within them. A request without a trace costs only a lookup in its context.
// Between servers, the trace is passed in the request's query ([Query]), which every fabric
// transmits unchanged. Machines receive it in the headers of W3C Trace Context.
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

// scope is the name of the spans' instrumentation scope.
const scope = "github.com/bourse-dev/bourse"

// Config describes the server that creates the spans.
type Config struct {
	Service string // name of the program, for example "bourse-proxy"
	ID      string // id of the server
	Region  string
	Version string
	Getenv  func(string) string
	Log     *slog.Logger
}

// Tracer creates traces. A nil Tracer creates none.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   otrace.Tracer
}

// Open returns a tracer that sends spans over HTTP to the collector configured by the environment, or nil if none is
// configured. It does not connect to the collector.
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
	), resource.WithFromEnv()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence
	if err != nil {
		return nil, errors.Join(err, to.Shutdown(ctx))
	}
	// The library reports export errors only to this global handler.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Log.Warn("export traces failed", slog.Any("err", err)) }))
	p := sdk.NewTracerProvider(sdk.WithBatcher(to), sdk.WithResource(of))
	return &Tracer{p, p.Tracer(scope)}, nil
}

// closeTime is how long a stopping server waits for the collector.
const closeTime = 3 * time.Second

// Close sends the remaining spans.
func (t *Tracer) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	return t.provider.Shutdown(ctx)
}

// w3c encodes traces in headers: https://www.w3.org/TR/trace-context.
var w3c propagation.TraceContext

// Request begins the span of an incoming request. The span belongs to the trace in the request's
// headers or, if there is none, to a new trace.
func (t *Tracer) Request(ctx context.Context, h http.Header, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, s := t.tracer.Start(w3c.Extract(ctx, propagation.HeaderCarrier(h)), name, otrace.WithSpanKind(otrace.SpanKindServer))
	return ctx, Span{s}
}

// Handler wraps h. It creates a span for each request that has a trace in its query or headers. The
// span of a request between servers is named after its path; all other spans are named "api".
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
		name := "api" // clients choose all other paths, which are therefore not used as names
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

// param is the query parameter that contains the trace.
const param = "traceparent"

// Query returns a query, beginning with "?", that makes a request part of the trace in
// ctx. It returns "" if ctx has no trace.
func Query(ctx context.Context) string {
	if !otrace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	h := propagation.MapCarrier{}
	w3c.Inject(ctx, h)
	return "?" + param + "=" + h[param]
}

// textIn returns the trace in a query, or "" if there is none.
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

// Into adds the trace in ctx to the headers of a request.
func Into(ctx context.Context, h http.Header) { w3c.Inject(ctx, propagation.HeaderCarrier(h)) }

// Start begins a span within the span in ctx. If ctx has no span, it returns the zero Span.
func Start(ctx context.Context, name string) (context.Context, Span) {
	in := otrace.SpanFromContext(ctx)
	if !in.IsRecording() {
		return ctx, Span{}
	}
	ctx, s := in.TracerProvider().Tracer(scope).Start(ctx, name)
	return ctx, Span{s}
}

// Span is a part of a trace. The zero Span does not belong to any trace, and its methods do
// nothing.
type Span struct{ span otrace.Span }

// On reports whether the span is recorded.
func (s Span) On() bool { return s.span != nil && s.span.IsRecording() }

// Set sets an attribute of the span, unless value is empty.
func (s Span) Set(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// SetInt sets an attribute to a number.
func (s Span) SetInt(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// End ends the span. If err is not nil, the span is marked as failed. Further calls have no effect.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}
