package worker

import (
	"bytes"
	"context"
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
	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/worker/machines"
)

// served is a host whose worker's API can be called.
type served struct {
	*host
	api fabric.Fabric
}

var w1 = bourse.Member{ID: "w1", Role: bourse.RoleWorker}

func newServed(t *testing.T) *served {
	t.Helper()
	h := newRigged(t, newRig)
	h.rig.images.takes = 0
	h.start(nil)
	t.Cleanup(h.crash)
	return &served{h, fabrictest.Serving(h.Handler())}
}

// pull pulls an image. It returns the progress lines, and the last line separately.
func (s *served) pull(image string) (progress []bourse.Image, last bourse.Image, err error) {
	s.t.Helper()
	var lines []bourse.Image
	err = fabric.ImagePull.Call(s.t.Context(), s.api, w1, fabric.PullRequest{Image: image}, func(i bourse.Image) error {
		lines = append(lines, i)
		return nil
	})
	if n := len(lines) - 1; n >= 0 {
		progress, last = lines[:n], lines[n]
	}
	return progress, last, err
}

func TestImages(t *testing.T) {
	s := newServed(t)
	progress, last, err := s.pull(rigImage)
	if err != nil || len(progress) == 0 || last.Pull != nil || last.Bytes != rigBytes {
		t.Errorf("pull: %v with %d lines, the last one %+v; want progress lines and then the image", err, len(progress), last)
	}
	if _, _, err := s.pull("example.com/none"); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("pull without an image: %v", err)
	}
	if _, _, err := s.pull("host"); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("pull of image host: %v", err)
	}
	if list, err := fabric.ImageList.Call(t.Context(), s.api, w1, struct{}{}); err != nil || len(list) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if gone, err := fabric.ImagePrune.Call(t.Context(), s.api, w1, struct{}{}); err != nil || len(gone) != 1 {
		t.Errorf("prune: %v, %v", gone, err)
	}

	// Once lines have been sent, an error is sent as the last line.
	s.rig.images.failing(func(_ context.Context, call string, after bool) error {
		if call == "Pull" && after {
			return bourse.Errorf(bourse.CodeInvalid, "the layer is corrupt")
		}
		return nil
	})
	if _, last, err := s.pull(rigImage); err != nil || last.Pull == nil || last.Pull.Status != "failed" || last.Pull.Error != "the layer is corrupt" {
		t.Errorf("the last line of a pull that fails halfway: %+v, %v", last.Pull, err)
	}
}

// metrics scrapes the worker.
func (s *served) metrics(t *testing.T) (status int, text string) {
	t.Helper()
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/worker/metrics", nil))
	return rec.Code, rec.Body.String()
}

func TestUsageAndMetrics(t *testing.T) {
	s := newServed(t)
	m := s.place(image(rigImage))
	u, err := fabric.MachineUsage.Call(t.Context(), s.api, w1, m.ID)
	if err != nil {
		t.Fatal(err)
	}
	if u.CPUs < 0.5 || u.CPUs > 1.5 || u.Memory != 1<<20 || u.MayCPUs != 1 || u.MayMemory != 64<<20 || u.ReadByte != -1 {
		t.Errorf("usage of a program that uses a whole core: %+v, want about one core", u)
	}
	status, text := s.metrics(t)
	for _, line := range []string{
		`bourse_worker_ledger_capacity{resource="memory"} `, `bourse_worker_machine_restarts_total 0`, `bourse_worker_runs{status="stuck"} 0`,
		`bourse_worker_store_faults_total 0`, `bourse_worker_store_full 0`, `bourse_worker_volumes{state="created"} 0`, `bourse_worker_volume_bytes 0`,
		`go_goroutines `, `process_cpu_seconds_total `,
		`bourse_worker_machines{state="started"} 1`,
		`bourse_worker_ledger_used{resource="memory"} 64`,
		`bourse_worker_start_seconds_count 1`,
		`bourse_worker_pulls_total 1`,
		`bourse_worker_pull_bytes_total ` + strconv.FormatFloat(rigBytes, 'g', -1, 64),
		`bourse_worker_machine_memory_bytes{app="web",machine="` + string(m.ID) + `"} 1.048576e+06`,
		`bourse_worker_machine_cpu_seconds_total{app="web",machine="` + string(m.ID) + `"}`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("metrics (status %d) do not contain %s:\n%s", status, line, text)
		}
	}
	s.must(s.machines.Stop(t.Context(), m.ID, fabric.MachineAction{}))
	s.reaches(m.ID, bourse.StateStopped)
	if u, err := fabric.MachineUsage.Call(t.Context(), s.api, w1, m.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("usage of a stopped machine: %+v, %v", u, err)
	}
}

// If a machine's usage is requested often, each request compares a new sample with the previous request's sample, and
// returns immediately.
func TestUsageComparesWithThePreviousSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		m := h.place()
		for i, wait := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second, time.Minute} {
			time.Sleep(wait)
			begin := time.Now()
			u, err := h.machines.Usage(t.Context(), m.ID)
			if err != nil || u.CPUs < 0.99 || u.CPUs > 1.01 {
				t.Errorf("answer %d: %g cores, %v; want 1", i, u.CPUs, err)
			}
			if took, want := time.Since(begin), map[int]time.Duration{0: 250 * time.Millisecond, 1: 250 * time.Millisecond, 3: 250 * time.Millisecond}[i]; took != want {
				t.Errorf("answer %d took %s, want %s", i, took, want)
			}
		}
	})
}

// tunnel returns what it reads from a machine's port.
func (s *served) tunnel(id bourse.MachineID, port int) (string, error) {
	r, err := fabric.MachineTunnel.Open(s.t.Context(), s.api, w1, fabric.TunnelRequest{Machine: id, Port: uint16(port)}, io.NopCloser(strings.NewReader("")))
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	return string(text), err
}

func TestTunnels(t *testing.T) {
	s := newServed(t)
	private := s.place(image(rigImage))
	if text, err := s.tunnel(private.ID, 8080); err != nil || text != "hello" {
		t.Errorf("tunnel to a machine with a private network: %q, %v", text, err)
	}
	listen := func(port int) int {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
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
		t.Cleanup(serving.Wait)
		t.Cleanup(func() { listener.Close() })
		return listener.Addr().(*net.TCPAddr).Port
	}
	taken := listen(0) // another program uses this port, so the machine whose service names it gets another one
	shared := s.place(func(o *bourse.Order) { o.Config.Services = []byte(`[{"internal_port":` + strconv.Itoa(taken) + `}]`) })
	if text, err := s.tunnel(shared.ID, taken); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("tunnel to a port that the machine's service names and another program uses: %q, %v", text, err)
	}
	listen(shared.Boot.Port)
	if text, err := s.tunnel(shared.ID, taken); err != nil || text != "hi" {
		t.Errorf("tunnel to a service: %q, %v", text, err)
	}
	for port, want := range map[int]bourse.Code{22: bourse.CodeForbidden, 0: bourse.CodeInvalid} {
		if text, err := s.tunnel(shared.ID, port); bourse.CodeOf(err) != want {
			t.Errorf("tunnel to port %d: %q, %v, want code %s", port, text, err, want)
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
			exit, err := execStream(t.Context(), d, machines.TaskOf(&m), fabric.ExecIO{
				Start: fabric.ExecStart{Command: []string{"print", "a", "warn", "b", "cat", "exit", "7"}, Terminal: terminal},
				Stdin: strings.NewReader("c\n"), Stdout: &out, Stderr: &errs, Resize: sizes,
			})
			if err != nil || exit.Code != 7 || !strings.HasPrefix(out.String(), "a\n") || !strings.HasSuffix(out.String(), "c\n") {
				t.Errorf("%s: exit %+v, %v, output %q", name, exit, err, out.String())
			}
		}
	})
}
