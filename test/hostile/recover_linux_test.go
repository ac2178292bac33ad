package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestStoreWithAFlippedBitIsRecovered flips a bit in a machine's record in worker.db while the worker is down. The next
// start must be refused with a message that names the recover command. The recover command must report the lost
// records. After that, a start must name the machine and must not stop any machine until --forget-machines is used. A
// regression killed the machine at the next start without a message.
func TestStoreWithAFlippedBitIsRecovered(t *testing.T) {
	data := filepath.Join(t.TempDir(), "w1")
	broker := servertest.Start(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	w := servertest.Start(t, "w1", "serve", "worker", "--region", "gru", "--name", "w1", "--data", data,
		"--cpus", "4", "--memory", "4GiB", "--disk", "1TiB", "--ephemeral", "--join", broker.Addr)
	api := servertest.Client(t, broker)
	if !servertest.Within(servertest.Timeout, func() bool {
		w, err := api.Worker(t.Context(), "w1")
		return err == nil && w.Status == machinesapi.WorkerOK
	}) {
		t.Fatal("the broker does not know its worker")
	}
	mark := fmt.Sprintf("bourse-recover-%d-", os.Getpid())
	var ids []bourse.MachineID
	for n := range 2 {
		m, err := api.Create(t.Context(), "default", machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
			Image: bourse.ImageHost, Init: bourse.Init{Exec: []string{"sh", "-c", "sleep 1000 & wait", fmt.Sprint(mark, n)}},
		}}, "")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	command := func(want int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, servertest.Program, args...).CombinedOutput()
		got := 0
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			got = exit.ExitCode()
		}
		if got != want {
			t.Errorf("%v exited with %d, want %d: %s", args, got, want, out)
		}
		return string(out)
	}
	if out := command(5, "worker", "store", "check", "--data", data); !strings.Contains(out, "in use") {
		t.Errorf("check while the daemon runs: %s, want \"in use\"", out)
	}
	if err := w.Kill(); err != nil {
		t.Fatal(err)
	}
	flipRecord(t, data, ids[0])
	if out := command(1, w.Args...); !strings.Contains(out, "bourse worker store recover") {
		t.Errorf("start with a damaged store: %s, want an error that names the recover command", out)
	}
	if out := command(1, "worker", "store", "check", "--data", data); !strings.Contains(out, "damaged: ") {
		t.Errorf("check of the damaged store: %s, want \"damaged: \"", out)
	}
	if out := command(0, "worker", "store", "recover", "--yes", "--data", data); !strings.Contains(out, "kept: worker.db.damaged-") {
		t.Errorf("recover: %s, want \"kept: worker.db.damaged-\"", out)
	}
	if out := command(0, "worker", "store", "check", "--data", data); !strings.Contains(out, "no damage found") {
		t.Errorf("check of the recovered store: %s, want \"no damage found\"", out)
	}
	if out := command(5, w.Args...); !strings.Contains(out, string(ids[0])) || strings.Contains(out, string(ids[1])) {
		t.Errorf("start with the recovered store: %s, want an error that names machine %s and no other", out, ids[0])
	}
	if n := len(processes(mark)); n != 2 {
		t.Fatalf("%d machines run, want 2", n)
	}
	w.Args = append(w.Args, "--forget-machines")
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	if m, err := api.Machine(t.Context(), "default", ids[1]); err != nil || m.State != bourse.StateStarted {
		t.Errorf("the other machine: %s, %v, want started", m.State, err)
	}
	if n := len(processes(mark)); n != 1 {
		t.Errorf("%d machines run, want only the machine with a record", n)
	}
}

// flipRecord flips a bit in every copy of a machine's record, in worker.db and in the log.
func flipRecord(t *testing.T, data string, id bourse.MachineID) {
	t.Helper()
	flipped := 0
	for _, name := range []string{"worker.db", "worker.wal.0", "worker.wal.1"} {
		path := filepath.Join(data, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		field := append([]byte("\x62id\x6e"), id...) // the encoding of a machine's first field, in CBOR
		for at := 0; ; {
			next := bytes.Index(b[at:], field)
			if next < 0 {
				break
			}
			at += next + len(field)
			if record := at - len(field) - 2; record >= 0 && b[record] == 3 { // the record starts here
				b[at-2] ^= 1
				flipped++
			}
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if flipped == 0 {
		t.Fatal("no file of the store contains the record to damage")
	}
}
