package fabric_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/codec"
)

var w1 = bourse.Member{ID: "w1", Role: bourse.RoleWorker, Tag: machine.Tag()}

const machine = bourse.MachineID("148e21ea1d5389")

// TestVerbs checks that the table contains each verb once, with the right permissions.
func TestVerbs(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range fabric.Verbs() {
		noun, verb, ok := strings.Cut(v.Name, "/")
		if v.Name == "metrics" { // only scrapers use this verb, which has its own path
			noun, verb, ok = "worker", v.Name, true
		}
		if !ok || noun == "" || verb == "" || seen[v.Name] || len(v.Roles) == 0 || v.Roles[0] != bourse.RoleBroker {
			t.Errorf("verb %+v", v)
		}
		seen[v.Name] = true
	}
	if len(seen) < 40 {
		t.Errorf("%d verbs", len(seen))
	}
}

// TestWhatAProxyMayAsk checks that proxies may use machines and connect to their ports, and
// nothing else.
func TestWhatAProxyMayAsk(t *testing.T) {
	var may []string
	for _, v := range fabric.Verbs() {
		if slices.Contains(v.Roles, bourse.RoleProxy) {
			may = append(may, v.Name)
		}
	}
	if diff := cmp.Diff([]string{"machine/tunnel", "machine/use"}, may); diff != "" {
		t.Errorf("calls that proxies may make (-want +got):\n%s", diff)
	}
}

// TestCall checks that verbs that change something are sent as messages, that verbs that only
// read are sent as requests, and that requests and replies arrive unchanged.
func TestCall(t *testing.T) {
	var mux http.ServeMux
	var how string
	f := fabrictest.Serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		how = r.Method + " " + r.URL.Path
		mux.ServeHTTP(w, r)
	}))
	act := fabric.MachineAction{Machine: machine, Nonce: "n", Force: true}
	done := fabric.ActReply{Previous: bourse.StateStarted, Machine: bourse.Machine{ID: machine}}
	fabric.MachineStop.Handle(&mux, func(_ context.Context, got fabric.MachineAction) (fabric.ActReply, error) {
		if diff := cmp.Diff(act, got); diff != "" {
			t.Errorf("the worker received another request (-want +got):\n%s", diff)
		}
		return done, nil
	})
	reply, err := fabric.MachineStop.Call(t.Context(), f, w1, act)
	if d := cmp.Diff(done, reply, byValue); err != nil || d != "" || how != "POST /worker/machine/stop" {
		t.Errorf("%s: %v (-want +got):\n%s", how, err, d)
	}
	query := fabric.MachinesQuery{App: "web", AppID: "1", Deleted: true}
	fabric.MachineList.Handle(&mux, func(_ context.Context, got fabric.MachinesQuery) ([]bourse.Machine, error) {
		if got != query {
			t.Errorf("the worker received %+v, want %+v", got, query)
		}
		return []bourse.Machine{done.Machine}, nil
	})
	list, err := fabric.MachineList.Call(t.Context(), f, w1, query)
	if d := cmp.Diff([]bourse.Machine{done.Machine}, list, byValue); err != nil || d != "" || how != "GET /worker/machine/list" {
		t.Errorf("%s: %v (-want +got):\n%s", how, err, d)
	}
}

// TestRequestsThatCannotBeRead checks the replies to invalid requests and to requests that do not come from this
// package.
func TestRequestsThatCannotBeRead(t *testing.T) {
	var mux http.ServeMux
	fabric.MachineShow.Handle(&mux, func(context.Context, bourse.MachineID) (bourse.Machine, error) {
		t.Error("an invalid request was accepted")
		return bourse.Machine{}, nil
	})
	for _, query := range []string{"", "%", "AAA=", "_w", "machine=x"} {
		if status := statusOf(t, &mux, "/worker/machine/show?"+query); status != http.StatusBadRequest {
			t.Errorf("%q: status %d", query, status)
		}
	}
}

func statusOf(t *testing.T, h http.Handler, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := fabrictest.Serving(h).Call(t.Context(), w1, req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestClaim(t *testing.T) {
	fill := &bourse.Fill{Machine: bourse.Machine{ID: machine}, Repeated: true}
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
			fabric.OrderClaim.Handle(&mux, func(_ context.Context, c bourse.Claim) (fabric.ClaimReply, error) {
				if c.Order.ID != "o1" {
					t.Errorf("the worker received %+v", c)
				}
				return tt.reply, nil
			})
			f, r, err := fabric.Trader{Fabric: fabrictest.Serving(&mux)}.Claim(t.Context(), w1, &bourse.Claim{Order: bourse.Order{ID: "o1"}})
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

func TestTooMuchIsNotSent(t *testing.T) {
	f := fabrictest.Serving(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request was sent") }))
	_, err := fabric.MachineExec.Call(t.Context(), f, w1, fabric.ExecRequest{Stdin: make([]byte, fabric.MaxBody)})
	if bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("got %v, want invalid", err)
	}
}

// writing responds to every request with body.
func writing(body string) fabrictest.Memory {
	return fabrictest.Serving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
}

func TestLinesEnd(t *testing.T) {
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
		{"without a final newline", strings.TrimSuffix(lines, "\n"), 0, 3, ""},
		{"when the reader has enough", lines, 2, 2, bourse.CodeCanceled},
		{"at an invalid line", lines + "<html>\n", 0, 3, bourse.CodeInternal},
		{"in the middle of a line", lines + `{"text`, 0, 3, bourse.CodeTimeout},
		{"at an endless line", strings.Repeat("x", 4<<20), 0, 0, bourse.CodeTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := 0
			err := fabric.MachineLogs.Call(t.Context(), writing(tt.body), w1, fabric.LogsQuery{}, func(fabric.LogLine) error {
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

// TestLinesFail checks that an error before the first line becomes the reply, and that a later
// error aborts the reply.
func TestLinesFail(t *testing.T) {
	for _, begun := range []bool{false, true} {
		var mux http.ServeMux
		fabric.MachineLogs.Handle(&mux, func(_ context.Context, q fabric.LogsQuery, out *codec.Writer) error {
			if begun {
				if err := out.Write(fabric.LogLine{Text: string(q.Machine)}); err != nil {
					t.Error(err)
				}
			}
			return bourse.Errorf(bourse.CodeNotFound, "no such machine")
		})
		var got []string
		err := fabric.MachineLogs.Call(t.Context(), fabrictest.Serving(&mux), w1, fabric.LogsQuery{Machine: "m"}, func(l fabric.LogLine) error {
			got = append(got, l.Text)
			return nil
		})
		if begun && (bourse.CodeOf(err) != bourse.CodeTimeout || len(got) != 1 || got[0] != "m") || !begun && bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("begun %v: got %q, %v", begun, got, err)
		}
	}
}

// TestPipe checks that bytes flow in both directions, and that the request's body is closed
// after a refusal.
func TestPipe(t *testing.T) {
	var mux http.ServeMux
	fabric.MachineTunnel.Handle(&mux, func(w http.ResponseWriter, r *http.Request, to fabric.TunnelRequest) {
		if to.Port != 80 {
			fabric.WriteFailure(w, bourse.Errorf(bourse.CodeForbidden, "not this one"))
			return
		}
		_, _ = io.Copy(w, r.Body)
	})
	f := fabrictest.Serving(&mux)
	r, err := fabric.MachineTunnel.Open(t.Context(), f, w1, fabric.TunnelRequest{Machine: machine, Port: 80}, io.NopCloser(strings.NewReader("both ways")))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != "both ways" {
		t.Errorf("got %q, %v", b, err)
	}
	r.Close()
	body, sent := io.Pipe()
	if _, err := fabric.MachineTunnel.Open(t.Context(), f, w1, fabric.TunnelRequest{Machine: machine, Port: 22}, body); bourse.CodeOf(err) != bourse.CodeForbidden {
		t.Errorf("got %v", err)
	}
	if _, err := sent.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the body of the refused request is still open: %v", err)
	}
}

// claimStreamed claims a task with a streamed answer, from a worker that replies with body.
func claimStreamed(t *testing.T, body string) (fill *bourse.Fill, refusal *bourse.Refusal, parts []string, err error) {
	t.Helper()
	claim := &bourse.Claim{Order: bourse.Order{Task: &bourse.TaskOrder{Output: func(p []byte) { parts = append(parts, string(p)) }}}}
	fill, refusal, err = fabric.Trader{Fabric: writing(body)}.Claim(t.Context(), w1, claim)
	return fill, refusal, parts, err
}

func TestAClaimThatStreams(t *testing.T) {
	const start = "{}\n" + `{"output":"b25l"}` + "\n"
	fill, _, parts, err := claimStreamed(t, start+`{"reply":{"fill":{"task":{"end":"answered"},"claimed":1,"started":2}}}`+"\n")
	if err != nil || fill.Task.End != bourse.TaskAnswered || len(parts) != 2 || parts[1] != "one" {
		t.Errorf("got %+v, %q, %v", fill, parts, err)
	}
	for name, c := range map[string]struct {
		body string
		want bourse.Code
	}{
		"a failure":                    {start + `{"failure":{"code":"unavailable","message":"m"}}`, bourse.CodeUnavailable},
		"no reply":                     {start, bourse.CodeTimeout},
		"half a line":                  {start + `{"repl`, bourse.CodeTimeout},
		"nothing":                      {"", bourse.CodeTimeout},
		"neither a fill nor a refusal": {`{"reply":{}}`, bourse.CodeInternal},
	} {
		if _, _, _, err := claimStreamed(t, c.body); bourse.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// FuzzClaimStream decodes arbitrary replies line by line.
func FuzzClaimStream(f *testing.F) {
	for _, s := range []string{"{}\n", `{"output":"b25l"}`, `{"reply":{"fill":{}}}`, `{"failure":{}}`, `{"failure":{"code":"x"}}`, "null\n[]\n", "{"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		fill, refusal, _, err := claimStreamed(t, body)
		if (err == nil) != ((fill == nil) != (refusal == nil)) {
			t.Errorf("got %v, %v, %v", fill, refusal, err)
		}
		if err != nil && bourse.CodeOf(err) == "" {
			t.Errorf("an error without a code: %v", err)
		}
	})
}

// FuzzRequestInURL decodes arbitrary requests.
func FuzzRequestInURL(f *testing.F) {
	for _, s := range []string{"", "oA", "oWNhcHBjd2Vi", "_____w", "%%", "a=b"} {
		f.Add(s)
	}
	var mux http.ServeMux
	fabric.MachineWait.Handle(&mux, func(context.Context, fabric.WaitQuery) (fabric.WaitReply, error) { return fabric.WaitReply{}, nil })
	f.Fuzz(func(t *testing.T, query string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fabric.MachineWait.Path(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.RawQuery = query
		resp, err := fabrictest.Serving(&mux).Call(t.Context(), w1, req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusBadRequest {
			t.Errorf("status %d", resp.StatusCode)
		}
	})
}
