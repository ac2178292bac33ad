package fabric_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
)

// memory is a fabric that calls a handler in place.
type memory struct{ http.Handler }

func (m memory) Call(ctx context.Context, _ bourse.Member, req *http.Request) (*http.Response, error) {
	r := httptest.NewRequestWithContext(ctx, req.Method, req.URL.String(), req.Body)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

func (m memory) Ask(ctx context.Context, to []bourse.Member, o *bourse.Order, answer func(bourse.Quote)) {
	fabric.AskAll(ctx, m.Call, to, o, answer)
}

var w1 = bourse.Member{ID: "w1", Role: bourse.RoleWorker}

type do = func(ctx context.Context, c *fabric.Client) (any, error)

// clientCall is a method of the client and what passes on the wire.
type clientCall struct {
	path  string
	url   string // what the handler must see
	body  any    // nil: none
	reply any
	do    do
}

// TestClient goes through the worker's API: each method takes its path, sends
// what the handler reads and returns what the handler wrote.
func TestClient(t *testing.T) {
	const m = bourse.MachineID("148e21ea1d5389")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	act := fabric.Act{Nonce: "n", Force: true}
	acted := fabric.ActReply{Previous: bourse.StateStarted, Machine: bourse.Machine{ID: m}}
	run := fabric.Run{ID: "r1", Status: "stuck"}
	machine := bourse.Machine{ID: m, App: "web"}
	verb := func(f func(*fabric.Client, context.Context, bourse.Member, bourse.MachineID, fabric.Act) (fabric.ActReply, error)) do {
		return func(ctx context.Context, c *fabric.Client) (any, error) { return f(c, ctx, w1, m, act) }
	}
	tests := []clientCall{
		{fabric.PathCancel, "/worker/orders/o1/cancel", struct{}{}, bourse.Cancellation{Machine: m}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Cancel(ctx, w1, "o1") }},
		{fabric.PathOrder, "/worker/orders/o1", nil, bourse.Decision{Order: "o1"}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Order(ctx, w1, "o1") }},
		{fabric.PathMachines, "/worker/machines", nil, []bourse.Machine{machine}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Machines(ctx, w1, fabric.MachinesQuery{})
		}},
		{fabric.PathMachines, "/worker/machines?app=web&deleted=true&name=a", nil, []bourse.Machine{machine}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Machines(ctx, w1, fabric.MachinesQuery{App: "web", Name: "a", Deleted: true})
		}},
		{fabric.PathMachine, "/worker/machines/148e21ea1d5389", nil, machine, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Machine(ctx, w1, m) }},
		{fabric.PathStart, "/worker/machines/148e21ea1d5389/start", act, acted, verb((*fabric.Client).Start)},
		{fabric.PathStop, "/worker/machines/148e21ea1d5389/stop", act, acted, verb((*fabric.Client).Stop)},
		{fabric.PathRestart, "/worker/machines/148e21ea1d5389/restart", act, acted, verb((*fabric.Client).Restart)},
		{fabric.PathDestroy, "/worker/machines/148e21ea1d5389/destroy", act, acted, verb((*fabric.Client).Destroy)},
		{fabric.PathCordon, "/worker/machines/148e21ea1d5389/cordon", act, acted, verb((*fabric.Client).Cordon)},
		{fabric.PathUncordon, "/worker/machines/148e21ea1d5389/uncordon", act, acted, verb((*fabric.Client).Uncordon)},
		{fabric.PathSignal, "/worker/machines/148e21ea1d5389/signal", act, acted, verb((*fabric.Client).Signal)},
		{fabric.PathRelease, "/worker/machines/148e21ea1d5389/release", act, acted, verb((*fabric.Client).Release)},
		{fabric.PathExec, "/worker/machines/148e21ea1d5389/exec", fabric.ExecRequest{Command: []string{"ls"}, Stdin: []byte("in")}, fabric.ExecReply{Stdout: []byte("out")}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Exec(ctx, w1, m, fabric.ExecRequest{Command: []string{"ls"}, Stdin: []byte("in")})
		}},
		{fabric.PathWait, "/worker/machines/148e21ea1d5389/wait?after=e1&instance=i1&state=started&state=stopped&timeout=1m0s", nil, fabric.WaitReply{State: "started"}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Wait(ctx, w1, m, fabric.WaitQuery{States: []bourse.State{"started", "stopped"}, Timeout: time.Minute, Instance: "i1", After: "e1"})
		}},
		{fabric.PathEvents, "/worker/machines/148e21ea1d5389/events?limit=7", nil, []bourse.Event{{ID: "e1"}}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Events(ctx, w1, m, 7) }},
		{fabric.PathLease, "/worker/machines/148e21ea1d5389/lease", fabric.LeaseRequest{TTL: time.Second}, bourse.Lease{Nonce: "n"}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Lease(ctx, w1, m, fabric.LeaseRequest{TTL: time.Second})
		}},
		{fabric.PathMetadata, "/worker/machines/148e21ea1d5389/metadata", fabric.MetadataRequest{Set: map[string]*string{"a": nil}}, machine, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.Metadata(ctx, w1, m, fabric.MetadataRequest{Set: map[string]*string{"a": nil}})
		}},
		{fabric.PathLogs, "/worker/machines/148e21ea1d5389/logs?follow=true&since=2026-01-02T03%3A04%3A05.000000006Z&tail=-1", nil, fabric.LogLine{At: at, Text: "hello"}, func(ctx context.Context, c *fabric.Client) (any, error) {
			var last fabric.LogLine
			err := c.Logs(ctx, w1, m, fabric.LogsQuery{Since: at, Tail: -1, Follow: true}, func(l fabric.LogLine) error { last = l; return nil })
			return last, err
		}},
		{fabric.PathApps, "/worker/apps", nil, []bourse.App{{Name: "web"}}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Apps(ctx, w1) }},
		{fabric.PathApp, "/worker/apps/web", bourse.App{Name: "web"}, bourse.App{Name: "web", ID: "1"}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.PutApp(ctx, w1, bourse.App{Name: "web"})
		}},
		{fabric.PathFacts, "/worker/facts", nil, bourse.Facts{Worker: "w1"}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Facts(ctx, w1) }},
		{fabric.PathRuns, "/worker/runs?ended=true", nil, []fabric.Run{run}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Runs(ctx, w1, true) }},
		{fabric.PathRunRetry, "/worker/runs/r1/retry", struct{}{}, run, func(ctx context.Context, c *fabric.Client) (any, error) { return c.RunRetry(ctx, w1, "r1") }},
		{fabric.PathRunSkip, "/worker/runs/r1/skip", struct{}{}, run, func(ctx context.Context, c *fabric.Client) (any, error) { return c.RunSkip(ctx, w1, "r1") }},
		{fabric.PathRunCancel, "/worker/runs/r1/cancel", struct{}{}, run, func(ctx context.Context, c *fabric.Client) (any, error) { return c.RunCancel(ctx, w1, "r1") }},
	}
	tests = append(tests, append(storageCalls(), reservationCalls()...)...)
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			var mux http.ServeMux
			mux.HandleFunc(tt.path, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.String() != tt.url {
					t.Errorf("the worker was asked %s, want %s", r.URL, tt.url)
				}
				if got, want := bodyOf(t, r), textOf(t, tt.body); got != want {
					t.Errorf("the worker was sent %q, want %q", got, want)
				}
				if tt.path == fabric.PathLogs || tt.path == fabric.PathImagePull { // lines
					if err := json.NewEncoder(w).Encode(tt.reply); err != nil {
						t.Error(err)
					}
					return
				}
				fabric.WriteBody(w, tt.reply)
			})
			got, err := tt.do(t.Context(), fabric.NewClient(memory{&mux}))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.reply, got, byValue); d != "" {
				t.Errorf("reply (-want +got):\n%s", d)
			}
		})
	}
}

// byValue compares what hides its fields.
var byValue = cmpopts.EquateComparable(netip.Addr{})

func bodyOf(t *testing.T, r *http.Request) string {
	t.Helper()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("body: %v", err)
	}
	return string(body)
}

func textOf(t *testing.T, v any) string {
	t.Helper()
	if v == nil {
		return ""
	}
	text, err := codec.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestClaim(t *testing.T) {
	fill := &bourse.Fill{Machine: bourse.Machine{ID: "148e21ea1d5389"}, Again: true}
	refusal := &bourse.Refusal{Worker: "w1", Reason: bourse.RefusedResource, Resource: "memory", Wanted: 512, Free: 100}
	tests := []struct {
		name  string
		reply fabric.ClaimReply
		code  bourse.Code
	}{
		{"a fill", fabric.ClaimReply{Fill: fill}, ""},
		{"a refusal", fabric.ClaimReply{Refusal: refusal}, ""},
		{"neither", fabric.ClaimReply{}, bourse.CodeInternal},
		{"both", fabric.ClaimReply{Fill: fill, Refusal: refusal}, bourse.CodeInternal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mux http.ServeMux
			mux.HandleFunc(fabric.PathClaim, func(w http.ResponseWriter, r *http.Request) {
				var claim bourse.Claim
				if err := fabric.ReadBody(w, r, &claim); err != nil || claim.Order.ID != "o1" {
					t.Errorf("the worker was sent %+v (%v)", claim, err)
				}
				fabric.WriteBody(w, tt.reply)
			})
			f, r, err := fabric.NewClient(memory{&mux}).Claim(t.Context(), w1, &bourse.Claim{Order: bourse.Order{ID: "o1"}})
			if bourse.CodeOf(err) != tt.code {
				t.Fatalf("got %v, want code %q", err, tt.code)
			}
			if tt.code != "" {
				return
			}
			if d := cmp.Diff(tt.reply, fabric.ClaimReply{Fill: f, Refusal: r}, byValue); d != "" {
				t.Errorf("reply (-want +got):\n%s", d)
			}
		})
	}
}

func TestClientRefusesTooMuch(t *testing.T) {
	h := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") })
	_, err := fabric.NewClient(memory{h}).Exec(t.Context(), w1, "148e21ea1d5389", fabric.ExecRequest{Stdin: make([]byte, fabric.MaxBody)})
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestLogsEnd(t *testing.T) {
	stop := bourse.Errorf(bourse.CodeCanceled, "enough")
	lines := strings.Repeat(`{"text":"x"}`+"\n", 3)
	tests := []struct {
		name   string
		body   string
		stopAt int
		lines  int
		code   bourse.Code
	}{
		{"at the end", lines, 0, 3, ""},
		{"without a last newline", strings.TrimSuffix(lines, "\n"), 0, 3, ""},
		{"when the reader has enough", lines, 2, 2, bourse.CodeCanceled},
		{"at what is no line", lines + "<html>\n", 0, 3, bourse.CodeInternal},
		{"at a line without end", strings.Repeat("x", 2<<20), 0, 0, bourse.CodeTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tt.body) })
			got := 0
			err := fabric.NewClient(memory{h}).Logs(t.Context(), w1, "148e21ea1d5389", fabric.LogsQuery{}, func(fabric.LogLine) error {
				if got++; got == tt.stopAt {
					return stop
				}
				return nil
			})
			if got != tt.lines || bourse.CodeOf(err) != tt.code {
				t.Errorf("got %d lines and %v, want %d and code %q", got, err, tt.lines, tt.code)
			}
		})
	}
}
