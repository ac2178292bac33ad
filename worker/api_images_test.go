package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/codec/codectest"
)

// served is a host whose worker's API can be reached.
type served struct {
	*host
	url string
}

func newServed(t *testing.T) *served {
	t.Helper()
	h := newRigged(t, newRig)
	h.rig.images.takes = 0
	h.start(nil)
	server := httptest.NewServer(h.Handler())
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
		h.crash()
	})
	return &served{h, server.URL}
}

// do sends a request to a pattern of package fabric, and gives the status and
// the body.
func (s *served) do(pattern string, id bourse.MachineID, query, body string) (int, string) {
	s.t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	url := s.url + strings.Replace(path, "{machine}", string(id), 1) + query
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(codectest.Body(s.t, body)))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", pattern, err)
	}
	return resp.StatusCode, string(all)
}

func TestImagesOverHTTP(t *testing.T) {
	s := newServed(t)
	status, lines := s.do(fabric.PathImagePull, "", "", `{"image":"`+rigImage+`"}`)
	var last bourse.Image
	n := 0
	for line := range strings.Lines(lines) {
		n++
		last = bourse.Image{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
	}
	if status != http.StatusOK || n < 2 || last.Pull != nil || last.Bytes != rigBytes {
		t.Errorf("pull: %d with %d lines, the last %+v; want progress and at last the image", status, n, last)
	}
	if status, body := s.do(fabric.PathImagePull, "", "", `{"image":"example.com/none"}`); status != http.StatusNotFound {
		t.Errorf("pull of nothing: %d %s", status, body)
	}
	if status, body := s.do(fabric.PathImagePull, "", "", `{"image":"host"}`); status != http.StatusBadRequest {
		t.Errorf("pull of the host: %d %s", status, body)
	}
	if status, body := s.do(fabric.PathImages, "", "", ""); status != http.StatusOK || strings.Count(body, "digest") != 1 {
		t.Errorf("list: %d %s", status, body)
	}
	if status, body := s.do(fabric.PathImagePrune, "", "", "{}"); status != http.StatusOK || strings.Count(body, "digest") != 1 {
		t.Errorf("prune: %d %s", status, body)
	}
	// Once lines have been sent, an error comes as the last of them.
	s.rig.images.failing(func(_ context.Context, call string, after bool) error {
		if call == "Pull" && after {
			return bourse.Errorf(bourse.CodeInvalid, "the layer lies")
		}
		return nil
	})
	if _, body := s.do(fabric.PathImagePull, "", "", `{"image":"`+rigImage+`"}`); !strings.Contains(body, `"failed"`) || !strings.Contains(body, "the layer lies") {
		t.Errorf("a pull that fails half-way ends with %s", body)
	}
}

func TestUsageAndMetrics(t *testing.T) {
	s := newServed(t)
	m := s.place(image(rigImage))
	status, body := s.do(fabric.PathUsage, m.ID, "", "")
	var u fabric.Usage
	if err := codec.Unmarshal([]byte(body), &u); err != nil || status != http.StatusOK {
		t.Fatalf("usage: %d %s, %v", status, body, err)
	}
	if u.CPUs < 0.5 || u.CPUs > 1.5 || u.Memory != 1<<20 || u.MayCPUs != 1 || u.MayMemory != 64<<20 || u.ReadByte != -1 {
		t.Errorf("usage %+v of a program that is always busy, want about one core", u)
	}
	status, text := s.do(pathMetrics, "", "", "")
	for _, line := range []string{
		`bourse_worker_machines{state="started"} 1`,
		`bourse_worker_ledger_used{resource="memory"} 64`,
		`bourse_worker_start_seconds_count 1`,
		`bourse_worker_pulls_total 1`,
		`bourse_worker_pull_bytes_total ` + strconv.FormatFloat(rigBytes, 'g', -1, 64),
		`bourse_worker_machine_memory_bytes{app="web",machine="` + string(m.ID) + `"} 1.048576e+06`,
		`bourse_worker_machine_cpu_seconds_total{app="web",machine="` + string(m.ID) + `"}`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics (%d) have no %s:\n%s", status, line, text)
		}
	}
	s.must(s.Worker.stop(t.Context(), m.ID, fabric.Act{}))
	s.reaches(m.ID, bourse.StateStopped)
	if status, body := s.do(fabric.PathUsage, m.ID, "", ""); status != http.StatusPreconditionFailed {
		t.Errorf("usage of a stopped machine: %d %s", status, body)
	}
}

// Samples of a machine that is asked about often are compared with the one
// before, without a wait.
func TestUsageComparesWithTheAnswerBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place()
		for i, wait := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second, time.Minute} {
			time.Sleep(wait)
			begin := time.Now()
			u, err := h.usage(t.Context(), m.ID)
			if err != nil || u.CPUs < 0.99 || u.CPUs > 1.01 {
				t.Errorf("answer %d: %g cores, %v; want 1", i, u.CPUs, err)
			}
			if took, want := time.Since(begin), map[int]time.Duration{0: usageGap, 1: usageGap, 3: usageGap}[i]; took != want {
				t.Errorf("answer %d took %s, want %s", i, took, want)
			}
		}
	})
}

func TestTunnels(t *testing.T) {
	s := newServed(t)
	private := s.place(image(rigImage))
	if status, body := s.do(fabric.PathTunnel, private.ID, "?port=8080", ""); status != http.StatusOK || body != "hello" {
		t.Errorf("tunnel to a machine of its own network: %d %q", status, body)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("hi"))
			_ = conn.Close()
		}
	})
	defer serving.Wait()
	defer listener.Close()
	own := listener.Addr().(*net.TCPAddr).Port
	shared := s.place(func(o *bourse.Order) { o.Config.Services = []byte(`[{"internal_port":` + strconv.Itoa(own) + `}]`) })
	if status, body := s.do(fabric.PathTunnel, shared.ID, "?port="+strconv.Itoa(own), ""); status != http.StatusOK || body != "hi" {
		t.Errorf("tunnel to a service: %d %q", status, body)
	}
	for query, want := range map[string]int{
		"?port=22": http.StatusForbidden, "?port=0": http.StatusBadRequest, "?port=65536": http.StatusBadRequest, "": http.StatusBadRequest,
	} {
		if status, body := s.do(fabric.PathTunnel, shared.ID, query, ""); status != want {
			t.Errorf("tunnel %q: %d %s, want %d", query, status, body, want)
		}
	}
}

func TestExecStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newImageHost(t)
		defer h.crash()
		m := h.place(image(rigImage))
		_, d, err := h.runningOn(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		sizes := make(chan fabric.Size, 1)
		sizes <- fabric.Size{Rows: 50, Cols: 100}
		for name, terminal := range map[string]*fabric.Terminal{"with a terminal": {}, "without": nil} {
			out.Reset()
			exit, err := execStream(t.Context(), d, taskOf(&m), fabric.ExecIO{
				Start: fabric.ExecStart{Command: []string{"print", "a", "warn", "b", "cat", "exit", "7"}, Terminal: terminal},
				Stdin: strings.NewReader("c\n"), Stdout: &out, Stderr: &errs, Resize: sizes,
			})
			if err != nil || exit.Code != 7 || !strings.HasPrefix(out.String(), "a\n") || !strings.HasSuffix(out.String(), "c\n") {
				t.Errorf("%s: exit %+v, %v, output %q", name, exit, err, out.String())
			}
		}
	})
}
