package machinesapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// replying starts a server that sends the same reply to every request and stores the last request.
func replying(t *testing.T, status int, body string, header ...string) (*machinesapi.Client, *http.Request) {
	t.Helper()
	last := &http.Request{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*last = *r.Clone(context.WithoutCancel(r.Context()))
		raw, _ := io.ReadAll(r.Body)
		last.Body = io.NopCloser(strings.NewReader(string(raw)))
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return &machinesapi.Client{BaseURL: server.URL + "/", Token: "secret", HTTP: server.Client()}, last
}

func TestCreateSendsAndReads(t *testing.T) {
	client, last := replying(t, 200, `{"id":"148e21ea1d5389","name":"web"}`,
		"Bourse-Order-Id", "01J00000000000000000000000", "Server-Timing", "quote;dur=0.250, rank;dur=x, , start;dur=2")
	got, err := client.Create(t.Context(), "shop", machinesapi.CreateMachine{Name: "web"}, "01J00000000000000000000000")
	if err != nil || got.Name != "web" || got.OrderID != "01J00000000000000000000000" {
		t.Errorf("%+v, %v", got, err)
	}
	want := machinesapi.Timing{"quote": 250 * time.Microsecond, "start": 2 * time.Millisecond}
	if diff := cmp.Diff(want, got.Timing); diff != "" {
		t.Errorf("timing (-want +got):\n%s", diff)
	}
	if last.URL.Path != "/v1/apps/shop/machines" || last.Header.Get("Authorization") != "Bearer secret" ||
		last.Header.Get("Bourse-Order-Id") != "01J00000000000000000000000" || last.Header.Get("Content-Type") != "application/json" {
		t.Errorf("sent %s with %v", last.URL, last.Header)
	}
}

// TestPathsAreEscaped checks that an ID cannot change the path of a request, because IDs may come from users.
func TestPathsAreEscaped(t *testing.T) {
	client, last := replying(t, 200, `{}`)
	_, _ = client.Machine(t.Context(), "../../x", "a/b?c")
	if got := last.URL.EscapedPath(); got != "/v1/apps/..%2F..%2Fx/machines/a%2Fb%3Fc" {
		t.Errorf("requested %s", got)
	}
}

func TestErrorReplies(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		code   bourse.Code
		text   string
	}{
		"the code in the body takes precedence": {409, `{"error":"no","code":"already_exists"}`, bourse.CodeAlreadyExists, "no"},
		"a prefix is for machines":              {404, `{"error":"not_found: machine not found","code":"not_found"}`, bourse.CodeNotFound, "machine not found"},
		"of another server":                     {412, `{"error":"failed_precondition: no"}`, bourse.CodeFailedPrecondition, "no"},
		"of a proxy":                            {503, `<html>busy</html>`, bourse.CodeUnavailable, "503 Service Unavailable: <html>busy</html>"},
		"from a proxy that timed out":           {504, ``, bourse.CodeTimeout, "504 Gateway Timeout"},
		"of unknown form":                       {418, `null`, bourse.CodeInternal, "418 I'm a teapot: null"},
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := replying(t, c.status, c.body, "fly-request-id", "r1")
			_, err := client.App(t.Context(), "shop")
			if bourse.CodeOf(err) != c.code || bourse.MessageOf(err) != c.text {
				t.Errorf("%s %q, want %s %q", bourse.CodeOf(err), bourse.MessageOf(err), c.code, c.text)
			}
			reply, ok := errors.AsType[*machinesapi.ReplyError](err)
			if !ok || reply.Status != c.status || reply.RequestID != "r1" || !strings.HasSuffix(err.Error(), "request r1") {
				t.Errorf("reply %+v of %v", reply, err)
			}
		})
	}
}

func TestEveryStatusHasACode(t *testing.T) {
	for _, code := range bourse.Codes() {
		got := machinesapi.CodeOfStatus(code.Status())
		shared := got.Status() == code.Status() || code == bourse.CodeInsufficient
		if got != code && !shared {
			t.Errorf("%s has status %d, which is decoded as %s", code, code.Status(), got)
		}
	}
}

// TestNoReply checks that, if there is no reply, the error's code shows whether the request may
// have had an effect.
func TestNoReply(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		client := &machinesapi.Client{BaseURL: "http://" + address}
		if err := client.DeleteApp(t.Context(), "shop", false); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("got error %v, want code %s", err, bourse.CodeUnavailable)
		}
	})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	t.Cleanup(server.Close)
	client := &machinesapi.Client{BaseURL: server.URL, HTTP: server.Client()}
	t.Run("the connection breaks during a change", func(t *testing.T) {
		if err := client.DeleteApp(t.Context(), "shop", false); bourse.CodeOf(err) != bourse.CodeTimeout {
			t.Errorf("got error %v, want code %s", err, bourse.CodeTimeout)
		}
	})
	t.Run("the connection breaks during a read", func(t *testing.T) {
		if _, err := client.App(t.Context(), "shop"); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("got error %v, want code %s", err, bourse.CodeUnavailable)
		}
	})
	t.Run("the caller leaves", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := client.App(ctx, "shop"); bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("got error %v, want code %s", err, bourse.CodeCanceled)
		}
	})
	t.Run("half a reply", func(t *testing.T) {
		client, _ := replying(t, 200, `{"name":"sh`)
		if _, err := client.App(t.Context(), "shop"); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("got error %v, want code %s", err, bourse.CodeUnavailable)
		}
	})
	t.Run("an invalid address", func(t *testing.T) {
		client := &machinesapi.Client{BaseURL: "http://[::bad"}
		if _, err := client.App(t.Context(), "shop"); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("got error %v, want code %s", err, bourse.CodeInvalid)
		}
	})
}

func TestQueries(t *testing.T) {
	client, last := replying(t, 200, `[]`, "Bourse-Unreachable", "w1,w2")
	_, silent, err := client.Machines(t.Context(), "shop", machinesapi.ListMachines{
		Deleted: true, Leases: true, Summary: true, Region: "gru", States: []bourse.State{"started", "stopped"}, Metadata: map[string]string{"k": "v"},
	})
	if want := "include_deleted=true&include_leases=true&metadata.k=v&region=gru&state=started&state=stopped&summary=true"; last.URL.RawQuery != want {
		t.Errorf("requested ?%s, want ?%s", last.URL.RawQuery, want)
	}
	if err != nil || !cmp.Equal(silent, []bourse.WorkerID{"w1", "w2"}) {
		t.Errorf("unreachable workers: %v, %v", silent, err)
	}
	client, last = replying(t, 200, `{"ok":true,"state":"started","version":"v","event_id":"e"}`)
	reply, err := client.Wait(t.Context(), "shop", "148e21ea1d5389", machinesapi.WaitMachine{
		States: []string{"started", machinesapi.StateSettled}, Timeout: bourse.Duration(5 * time.Second), Version: "v", After: "a",
	})
	if want := "from_event_id=a&state=started&state=settled&timeout=5s&version=v"; err != nil || last.URL.RawQuery != want || reply.EventID != "e" {
		t.Errorf("requested ?%s for %+v, %v; want ?%s", last.URL.RawQuery, reply, err, want)
	}
	client, last = replying(t, 200, `{"ok":true}`)
	if err := client.Restart(t.Context(), "shop", "148e21ea1d5389", machinesapi.RestartMachine{ForceStop: true, Signal: "SIGTERM", Timeout: bourse.Duration(time.Second)}, "n"); err != nil ||
		last.URL.RawQuery != "force_stop=true&signal=SIGTERM&timeout=1s" || last.Header.Get("fly-machine-lease-nonce") != "n" {
		t.Errorf("requested ?%s with %v, %v", last.URL.RawQuery, last.Header, err)
	}
}

// TestEveryCallSendsItsPath checks what each simple call sends, and that it decodes the reply.
func TestEveryCallSendsItsPath(t *testing.T) {
	const base = "/v1/apps/shop/machines/148e21ea1d5389/"
	for want, c := range map[string]struct {
		reply, body string
		call        func(c *machinesapi.Client) (any, error)
		got         any
	}{
		"POST " + base + "lease": {`{"data":{"nonce":"n2"}}`, `{"ttl":30}`, func(c *machinesapi.Client) (any, error) {
			l, err := c.Lease("shop", "148e21ea1d5389").Acquire(t.Context(), machinesapi.LeaseRequest{TTL: 30}, "n1")
			return l.Nonce, err
		}, "n2"},
		"GET " + base + "lease": {`{"data":{"owner":"ann"}}`, "", func(c *machinesapi.Client) (any, error) {
			l, err := c.Lease("shop", "148e21ea1d5389").Get(t.Context())
			return l.Owner, err
		}, "ann"},
		"DELETE " + base + "lease": {``, "", func(c *machinesapi.Client) (any, error) {
			return nil, c.Lease("shop", "148e21ea1d5389").Release(t.Context(), "n1")
		}, nil},
		"GET " + base + "metadata": {`{"k":"v"}`, "", func(c *machinesapi.Client) (any, error) {
			return c.Metadata("shop", "148e21ea1d5389").All(t.Context())
		}, map[string]string{"k": "v"}},
		"PATCH " + base + "metadata": {``, `{"metadata":{"k":null}}`, func(c *machinesapi.Client) (any, error) {
			return nil, c.Metadata("shop", "148e21ea1d5389").Patch(t.Context(), machinesapi.MetadataPatch{Metadata: map[string]*string{"k": nil}})
		}, nil},
		"GET " + base + "metadata/k": {`{"value":"v"}`, "", func(c *machinesapi.Client) (any, error) {
			return c.Metadata("shop", "148e21ea1d5389").Get(t.Context(), "k")
		}, "v"},
		"POST " + base + "metadata/k": {``, `{"value":"v"}`, func(c *machinesapi.Client) (any, error) {
			return nil, c.Metadata("shop", "148e21ea1d5389").Set(t.Context(), "k", "v")
		}, nil},
		"DELETE " + base + "metadata/k": {``, "", func(c *machinesapi.Client) (any, error) {
			return nil, c.Metadata("shop", "148e21ea1d5389").Delete(t.Context(), "k")
		}, nil},
		"GET " + base + "events?limit=3": {`[{"id":"e1"}]`, "", func(c *machinesapi.Client) (any, error) {
			list, err := c.Events(t.Context(), "shop", "148e21ea1d5389", 3)
			return len(list), err
		}, 1},
		"POST " + base + "cordon": {``, "", func(c *machinesapi.Client) (any, error) {
			return nil, c.Cordon(t.Context(), "shop", "148e21ea1d5389", true, "n1")
		}, nil},
		"POST " + base + "uncordon": {``, "", func(c *machinesapi.Client) (any, error) {
			return nil, c.Cordon(t.Context(), "shop", "148e21ea1d5389", false, "n1")
		}, nil},
	} {
		t.Run(want, func(t *testing.T) {
			client, last := replying(t, 200, c.reply)
			got, err := c.call(client)
			if err != nil || !cmp.Equal(got, c.got) {
				t.Errorf("got %v, %v, want %v", got, err, c.got)
			}
			body, _ := io.ReadAll(last.Body)
			if sent := last.Method + " " + last.URL.RequestURI(); sent != want || strings.TrimSpace(string(body)) != c.body {
				t.Errorf("sent %s %s, want %s", sent, body, c.body)
			}
		})
	}
}
