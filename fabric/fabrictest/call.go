package fabrictest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const path = "/worker/x"

// post returns a POST request like those that clients send.
func post(body string) *http.Request {
	read := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(body)), nil }
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}, Header: http.Header{"Content-Type": {"application/cbor"}}}
	r.ContentLength, r.GetBody = int64(len(body)), read
	r.Body, _ = read()
	return r
}

func testEcho(t *testing.T, n Network) {
	type seen struct{ Method, Path, Query, Type, Body string }
	got := make(chan seen, 1)
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), string(body)}
		w.Header().Set("X-Reply", "yes")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "the reply")
	}))
	req := post("the request")
	req.URL.RawQuery = "a=1&a=2"
	resp, err := n.Fabric().Call(soon(t), w.Member, req)
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	defer resp.Body.Close()
	if d := cmp.Diff(seen{"POST", path, "a=1&a=2", "application/cbor", "the request"}, <-got); d != "" {
		t.Errorf("request received by the worker (-want +got):\n%s", d)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "the reply" || resp.StatusCode != http.StatusAccepted || resp.Header.Get("X-Reply") != "yes" {
		t.Errorf("got reply %d %q %v (%v)", resp.StatusCode, body, resp.Header, err)
	}
}

func testIDs(t *testing.T, n Network) {
	var mux http.ServeMux
	fabric.MachineShow.Handle(&mux, func(_ context.Context, id bourse.MachineID) (bourse.Machine, error) {
		return bourse.Machine{Name: string(id)}, nil
	})
	w := n.Serve("w1", &mux)
	for _, id := range []bourse.MachineID{"148e21ea1d5389", "", ".", "..", "a/../../worker/facts", "a b", "a?deleted=true", "a#b", "a%2fb", "…", "a\x00b", "\r\nX: y"} {
		m, err := fabric.MachineShow.Call(soon(t), n.Fabric(), w.Member, id)
		if err != nil || m.Name != string(id) {
			t.Errorf("machine %q: the worker received %q (%v)", id, m.Name, err)
		}
	}
}

func testLarge(t *testing.T, n Network) {
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		size, _ := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x\n", size, sum.Sum(nil))
		_, _ = w.Write(bytes.Repeat([]byte{'r'}, fabric.MaxBody))
	}))
	body := strings.Repeat("q", fabric.MaxBody)
	resp, err := n.Fabric().Call(soon(t), w.Member, post(body))
	if err != nil {
		t.Fatalf("call: %v", err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	head := fmt.Sprintf("%d %x\n", len(body), sha256.Sum256([]byte(body)))
	if want := head + strings.Repeat("r", fabric.MaxBody); err != nil || string(got) != want {
		t.Fatalf("got %d bytes beginning with %.80q (%v), want %d beginning with %q", len(got), got, err, len(want), head)
	}
}

func testStream(t *testing.T, n Network) {
	goOn := make(chan struct{})
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, `{"text":"first"}`)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		select {
		case <-goOn:
		case <-r.Context().Done():
		}
		fmt.Fprintln(w, `{"text":"second"}`)
	}))
	var got []string
	err := fabric.MachineLogs.Call(soon(t), n.Fabric(), w.Member, fabric.LogsQuery{Machine: machine, Follow: true}, func(l fabric.LogLine) error {
		if len(got) == 0 {
			close(goOn) // lets the worker write the second line
		}
		got = append(got, l.Text)
		return nil
	})
	if d := cmp.Diff([]string{"first", "second"}, got); err != nil || d != "" {
		t.Errorf("logs: error %v (-want +got):\n%s", err, d)
	}
}

func testErrors(t *testing.T, n Network) {
	var now error
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fabric.WriteFailure(w, now) }))
	for _, code := range bourse.Codes() {
		now = bourse.Errorf(code, "the reason for %s", code)
		_, err := fabric.WorkerFacts.Call(soon(t), n.Fabric(), w.Member, struct{}{})
		if bourse.CodeOf(err) != code || bourse.MessageOf(err) != bourse.MessageOf(now) {
			t.Errorf("%s: got %q %q", code, bourse.CodeOf(err), bourse.MessageOf(err))
		}
	}
}

func testMany(t *testing.T, n Network) {
	w := n.Serve("w1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	ctx := soon(t)
	var calls errgroup.Group
	calls.SetLimit(100) // on a busy host, more concurrent dials would exceed the time limit of a dial
	for i := range 1000 {
		calls.Go(func() error {
			if err := echo(ctx, n.Fabric(), w.Member, fmt.Sprint("call ", i)); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
			return nil
		})
	}
	_ = calls.Wait() // the calls report their own errors
}

// echo calls a worker and checks that its reply is the request's body.
func echo(ctx context.Context, f fabric.Fabric, to bourse.Member, body string) error {
	resp, err := f.Call(ctx, to, post(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != body {
		err = fmt.Errorf("got %q, want %q", got, body)
	}
	return err
}
