package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// workshop is a broker, a worker in gru and one in mad. The worker in gru keeps the example
// program increment warm.
type workshop struct {
	t                *testing.T
	broker, gru, mad *server
	api              *machinesapi.Client
}

func newWorkshop(t *testing.T) *workshop {
	t.Helper()
	program := filepath.Join(t.TempDir(), "increment")
	if out, err := exec.Command("go", "build", "-o", program, "../examples/increment").CombinedOutput(); err != nil {
		t.Fatalf("build increment: %v\n%s", err, out)
	}
	w := &workshop{t: t, broker: startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")}
	w.gru, _ = newWorker(t, "w-gru", "gru", "--resource", "slots=10", "--join", w.broker.Addr)
	w.mad, _ = newWorker(t, "w-mad", "mad", "--resource", "slots=10", "--join", w.broker.Addr)
	startAll(t, w.gru, w.mad)
	w.gru.Settle()
	w.api = client(t, w.broker)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 3, w.api) })
	create(t, w.api, machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: "host", Init: bourse.Init{Cmd: []string{program}}, Task: &bourse.TaskConfig{Name: "increment", Concurrency: 10},
	}})
	return w
}

// slots returns the number of used slots on the worker in gru.
func (w *workshop) slots() int64 {
	w.t.Helper()
	var used int64
	eventually(w.t, waitTimeout, "the worker answers", func() error {
		worker, err := w.api.Worker(w.t.Context(), "w-gru")
		if err != nil || worker.Facts == nil {
			return errors.Join(err, errors.New("the worker reports no facts: "+worker.Error))
		}
		used = 0
		for _, a := range worker.Facts.Accounts {
			if a.Resource == "slots" {
				used = a.Used
			}
		}
		return nil
	})
	return used
}

// free waits until no slot is used. The end of a task is recorded shortly after it is
// reported.
func (w *workshop) free() {
	w.t.Helper()
	eventually(w.t, waitTimeout, "all slots are free", func() error {
		if n := w.slots(); n != 0 {
			return fmt.Errorf("%d slots are in use, want 0", n)
		}
		return nil
	})
}

func (w *workshop) run(payload string, order bourse.OrderID) (machinesapi.TaskReply, error) {
	return w.api.RunTask(w.t.Context(), app, machinesapi.RunTask{
		Task: "increment", Payload: []byte(payload), Requirements: bourse.Requirements{"slots": {Count: 1}}, Timeout: bourse.Duration(20 * time.Second),
	}, order)
}

// TestTasksOfRealPrograms runs tasks with the command line and with curl.
func TestTasksOfRealPrograms(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	task := func(args ...string) (string, int) {
		cmd := exec.Command(servertest.Program, append([]string{"--api", "http://" + w.broker.API, "task", "run"}, args...)...)
		out, err := cmd.Output()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return string(out), 0
	}
	id := string(bourse.NewOrderID())
	for _, c := range []struct {
		args []string
		out  string
		code int
	}{
		{[]string{"increment", `{"N":41}`, "--slots", "1", "-r", "gru"}, "42", 0},
		{[]string{"increment", "7", "--order-id", id}, "8", 0},
		{[]string{"increment", "8", "--stream"}, "9", 0},
		{[]string{"increment", "7", "--order-id", id}, "8", 0},  // repeating the order returns the first answer
		{[]string{"increment", "100", "--order-id", id}, "", 5}, // the order's id belongs to another payload
		{[]string{"increment", "7", "-r", "mad"}, "", 6},
		{[]string{"increment", "7", "--slots", "11"}, "", 6},
		{[]string{"other", "7"}, "", 6},
		{[]string{"increment", `{"SleepSec":30}`, "--timeout", "100ms"}, "", 8},
		{[]string{"increment", "hello"}, "send a number", 1},
		{[]string{"in.crement", "7"}, "", 2},
		{[]string{"--image", "host", "--payload", "to be counted", "-r", "gru", "--", "wc", "-c"}, "13", 0},
		{[]string{"--image", "host", "-e", "CODE=7", "--", "sh", "-c", "printf half; exit $CODE"}, "half", 7},
		{[]string{"--image", "host", "--timeout", "200ms", "--", "sleep", "30"}, "", 8},
		{[]string{"--image", "host", "--", "/no/such/program"}, "", 2},
	} {
		if out, code := task(c.args...); code != c.code || !strings.HasPrefix(out, c.out) {
			t.Errorf("task run %q: exit status %d, output %q; want %d, %q", c.args, code, out, c.code, c.out)
		}
	}
	resp, err := w.broker.HTTP(t).Post("http://"+w.broker.API+"/schedule", "", strings.NewReader(`{"Task":"increment","Payload":{"N":41},"Requirements":{"Region":"gru","Slots":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != "42" {
		t.Errorf("schedule: status %s, body %s, %v; want 200 and 42", resp.Status, body, err)
	}
	w.free()
}

// TestWorkerKilledDuringTasks kills the worker while tasks are running. Each caller must get an answer well before its
// task's deadline. After the restart, the slots must be free, the machine must still be warm, and repeated requests
// must report that the task was lost.
func TestWorkerKilledDuringTasks(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	const calls = 5
	ids := make([]bourse.OrderID, calls)
	errs := make([]error, calls)
	var group sync.WaitGroup
	began := time.Now()
	for i := range calls {
		if i%2 == 0 {
			ids[i] = bourse.NewOrderID() // chosen here, because otherwise only the error contains it
		}
		group.Go(func() { _, errs[i] = w.run(`{"N":1,"SleepSec":15}`, ids[i]) })
	}
	eventually(t, waitTimeout, "all calls are in progress", func() error {
		if n := w.slots(); n != calls {
			return fmt.Errorf("%d slots are in use, want %d", n, calls)
		}
		return nil
	})
	if err := w.gru.Kill(); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if took := time.Since(began); took > 12*time.Second {
		t.Errorf("the calls took %s, want at most 12 s", took)
	}
	for i, err := range errs {
		reply, ok := errors.AsType[*machinesapi.ReplyError](err)
		if bourse.CodeOf(err) != bourse.CodeTimeout || !ok || reply.OrderID == "" || ids[i] != "" && !ids[i].Time().Equal(reply.OrderID.Time()) {
			t.Fatalf("call %d: %v, %+v; want a timeout with the order's id", i, err, reply)
		}
		ids[i] = reply.OrderID
	}
	if err := w.gru.Start(); err != nil {
		t.Fatal(err)
	}
	w.free()
	for i, id := range ids {
		eventually(t, waitTimeout, "order "+strconv.Itoa(i)+" returns the same answer", func() error {
			reply, err := w.run(`{"N":1,"SleepSec":15}`, id)
			if err == nil && (reply.End != bourse.TaskLost || !reply.Repeated || reply.OK) {
				t.Errorf("repeated order %d: %+v, want end lost and repeated true", i, reply)
			}
			return err
		})
	}
	if reply, err := w.run("41", ""); err != nil || string(reply.Bytes()) != "42" {
		t.Errorf("task after the restart: %+v, %v; want 42", reply, err)
	}
}

// TestColdTaskSurvivesADaemonKill kills the worker's daemon while the program of a cold task handles a payload. The
// program must continue, and a repeated request must return its answer.
func TestColdTaskSurvivesADaemonKill(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := bourse.NewOrderID()
	ran := filepath.Join(t.TempDir(), "ran")
	task := machinesapi.RunTask{
		Image: "host", Command: []string{"sh", "-c", "echo once >> " + ran + "; sleep 3; cat"}, Payload: []byte(`"the payload"`),
		Region: "gru", Timeout: bourse.Duration(20 * time.Second),
	}
	result := make(chan error, 1)
	go func() {
		_, err := w.api.RunTask(t.Context(), app, task, id)
		result <- err
	}()
	eventually(t, waitTimeout, "it runs", func() error {
		_, err := os.Stat(ran)
		return err
	})
	if err := w.gru.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-result; bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("the first reply was %v, want a timeout", err)
	}
	if err := w.gru.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the repeated request returns the answer", func() error {
		reply, err := w.api.RunTask(t.Context(), app, task, id)
		if err == nil && (!reply.OK || !reply.Repeated || string(reply.Bytes()) != "the payload") {
			t.Errorf("repeated request: %+v, want ok, the payload as the answer, and repeated true", reply)
		}
		return err
	})
	if text, err := os.ReadFile(ran); err != nil || string(text) != "once\n" {
		t.Errorf("the file that the program appends to contains %q, %v; want \"once\\n\"", text, err)
	}
}

// TestNoSlotIsLost has sixteen callers use a worker with ten slots, whose daemon is killed
// repeatedly. Every caller must get an answer in time. Afterwards no slot and no machine
// may be lost.
func TestNoSlotIsLost(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var answered, other atomic.Int64
	for i := range 16 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				reply, err := w.run(fmt.Sprintf(`{"N":%d,"SleepSec":0.00%d}`, n, i%4), "")
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a call took %s, want at most 10 s: %v", took, err)
				}
				if err == nil && reply.OK && string(reply.Bytes()) == strconv.Itoa(n+1) {
					answered.Add(1)
					continue
				}
				other.Add(1)
				pause(ctx, 5*time.Millisecond) // back off, like other clients
			}
		})
	}
	for range 8 {
		before := answered.Load()
		within(5*time.Second, func() bool { return answered.Load() > before+100 })
		if err := w.gru.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := w.gru.Start(); err != nil {
			t.Fatal(err)
		}
	}
	before := answered.Load()
	within(10*time.Second, func() bool { return answered.Load() > before+100 })
	stop()
	callers.Wait()
	t.Logf("%d tasks were answered, %d were not", answered.Load(), other.Load())
	if answered.Load() < 500 {
		t.Errorf("only %d tasks were answered, which is not enough load", answered.Load())
	}
	w.free()
}
