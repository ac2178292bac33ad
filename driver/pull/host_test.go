package pull

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func sized(n int, name string, cpu bourse.MilliCPU, memory bourse.MiB) driver.Task {
	t := taskOf(n, name)
	t.Limits = driver.Limits{CPUQuota: cpu, Memory: memory}
	return t
}

// TestBestFit checks that a job is offered to the host whose unused capacity it fits best, and never to a host that has
// too little capacity.
func TestBestFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for name, size := range map[string]Size{"small": {CPU: 2000, Memory: 1024}, "large": {CPU: 16000, Memory: 16384}} {
			if err := r.Register(name, Ticket(name), size, nil); err != nil {
				t.Fatal(err)
			}
		}
		var cancels []context.CancelFunc
		polls := map[string]<-chan Job{}
		for _, name := range []string{"large", "small"} {
			ctx, cancel := context.WithCancel(t.Context())
			cancels = append(cancels, cancel)
			polls[name] = r.poll(ctx, name)
		}
		defer func() {
			for _, cancel := range cancels {
				cancel()
			}
		}()
		synctest.Wait()
		give := func(task driver.Task, want string) {
			t.Helper()
			start := r.begin(t.Context(), task)
			synctest.Wait()
			var host string
			select {
			case <-polls["small"]:
				host = "small"
			case <-polls["large"]:
				host = "large"
			default:
				if s := <-start; want != "" || bourse.CodeOf(s.err) != bourse.CodeInsufficient {
					t.Errorf("%s was not offered (%v), want %q", task.Name, s.err, want)
				}
				return
			}
			if host != want {
				t.Errorf("%s was offered to %s, want %q", task.Name, host, want)
			}
			for range 2 { // registering again counts as a heartbeat
				if err := r.Claim(task.Name, Claimer{By: host, Ticket: Ticket(host), Host: host}); err != nil {
					t.Errorf("%s: %v", task.Name, err)
				}
			}
			<-start
			polls[host] = r.poll(t.Context(), host)
			synctest.Wait()
		}
		give(sized(1, "a", 1000, 512), "small")
		give(sized(2, "b", 4000, 512), "large")
		give(sized(3, "c", 1000, 512), "small")
		give(sized(4, "d", 1000, 256), "large") // the host small is full
		give(sized(5, "e", 12000, 256), "")     // the host large has only 11 CPUs left
		if err := r.End("a", Report{Ticket: "small"}); err != nil {
			t.Fatal(err)
		}
		give(sized(6, "f", 1000, 256), "small") // an ended job frees its capacity
		for _, h := range []string{"small", "large"} {
			r.mu.Lock()
			free := r.free(r.hosts[h])
			r.mu.Unlock()
			if free.CPU < 0 || free.Memory < 0 {
				t.Errorf("%s has %+v free", h, free)
			}
		}
		for _, p := range r.pollersNow() { // end the calls that are still waiting
			p.got <- &job{}
		}
	})
}

// pollersNow removes all waiting pollers from the list and returns them.
func (r *rig) pollersNow() []*poller {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.pollers
	r.pollers = nil
	return out
}

// TestHostsComeAndGo checks that a waiting host counts as alive, and that a host that has disappeared is removed and
// its jobs are given up. When a host registers again, it lists its running jobs.
func TestHostsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		watching, stop := context.WithCancel(t.Context())
		defer stop()
		r.watchIn(watching)
		size := Size{CPU: 4000, Memory: 4096}
		assign := func(task driver.Task) {
			t.Helper()
			jobs := r.poll(t.Context(), "h")
			synctest.Wait()
			start := r.begin(t.Context(), task)
			<-jobs
			if err := r.Claim(task.Name, Claimer{By: "h", Ticket: "h", Host: "h"}); err != nil {
				t.Fatal(err)
			}
			<-start
		}
		if err := r.Register("h", "h", size, nil); err != nil {
			t.Fatal(err)
		}
		a, b := sized(1, "a", 1000, 1), sized(2, "b", 1000, 1)
		assign(a)
		assign(b)
		asking, leave := context.WithCancel(t.Context())
		r.poll(asking, "h")
		time.Sleep(time.Hour)
		if s, _ := r.Inspect(t.Context(), a.ID); s.Exit != nil {
			t.Errorf("a ended with %+v, although its host is waiting for jobs", s.Exit)
		}
		if err := r.Register("h", "h", size, []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if exit, _ := r.Wait(t.Context(), b.ID); exit.Code != -1 {
			t.Errorf("b: got %+v, want it given up, because its host no longer runs it", exit)
		}
		leave()
		time.Sleep(3 * r.cfg.Lost)
		if exit, err := r.Wait(t.Context(), a.ID); err != nil || exit.Code != -1 {
			t.Errorf("a: got %+v, %v; want it given up with its host", exit, err)
		}
		_, _, err := r.Next(t.Context(), "h", "h")
		r.wantCode("a call of a removed host", err, bourse.CodeNotFound)
	})
}

func TestInvalidHosts(t *testing.T) {
	r := newRig(t)
	good := Size{CPU: 1, Memory: 1}
	for _, name := range []string{"", "A", "a b", "../x", "a\n"} {
		r.wantCode("Register "+name, r.Register(name, Ticket(name), good, nil), bourse.CodeInvalid)
	}
	for _, size := range []Size{{}, {CPU: -1, Memory: 1}, {CPU: 1, Memory: -1}, {CPU: 1, Memory: 1, Disk: -1}, {CPU: 1 << 62, Memory: 1}, {CPU: 1, Memory: 1 << 62}} {
		r.wantCode("Register", r.Register("a", "a", size, nil), bourse.CodeInvalid)
	}
}
