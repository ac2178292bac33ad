package test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// TestIdleMachineIsStopped checks that an idle machine is stopped. A machine whose program keeps it awake, by calling
// its socket with curl, must continue, even if its worker's daemon is killed and restarted. It must be stopped once the
// program has finished.
func TestIdleMachineIsStopped(t *testing.T) {
	t.Parallel()
	broker := startServer(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	one, _ := newWorker(t, "w1", "gru", "--join", broker.Addr, "--idle-after", "10s") // a machine must request to stay awake within this time
	startAll(t, one)
	one.Settle()
	api := client(t, broker)
	eventually(t, waitTimeout, "the servers know each other", func() error { return servertest.Agreed(t.Context(), 2, api) })
	mark := fmt.Sprintf("bourse-idle-%d", os.Getpid())
	order := func(script string) machinesapi.CreateMachine {
		in := on("w1", sleeper("gru", mark))
		in.Config.Init.Exec = []string{"sh", "-c", script, mark}
		in.Config.Services = json.RawMessage(`[{"internal_port":8080,"autostart":true,"autostop":"stop","ports":[{"port":80}]}]`)
		return in
	}
	done := t.TempDir() + "/done"
	const ask = `curl -fsS --unix-socket "$BOURSE_AWAKE_SOCKET" -X `
	idle := create(t, api, order("sleep 600"))
	awake := create(t, api, order(ask+`PUT "http://localhost/v1/awake?ttl=1h" || exit 1; `+
		`while ! test -e `+done+`; do sleep 0.1; `+ask+`PUT "http://localhost/v1/awake?ttl=1h"; done; `+ask+`DELETE http://localhost/v1/awake; sleep 600`))
	reaches := func(id bourse.MachineID, want bourse.State) (m machinesapi.Machine) {
		t.Helper()
		eventually(t, waitTimeout, string(want), func() (err error) {
			if m, err = api.Machine(t.Context(), app, id); err == nil && m.State != want {
				err = fmt.Errorf("machine %s is %s, want %s", id, m.State, want)
			}
			return err
		})
		return m
	}
	stopped := reaches(idle.ID, bourse.StateStopped)
	found := false
	for _, e := range stopped.Events {
		found = found || e.Reason == "idle for 10s"
	}
	if !found {
		t.Errorf("no event contains the reason for the stop: %+v", stopped.Events)
	}
	if m := reaches(awake.ID, bourse.StateStarted); m.State != bourse.StateStarted {
		t.Errorf("the machine that stays awake is %s, want started", m.State)
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	startAll(t, one)
	again := create(t, api, order("sleep 600"))
	reaches(again.ID, bourse.StateStopped) // the daemon checks all idle machines at the same time
	reaches(awake.ID, bourse.StateStarted)
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reaches(awake.ID, bourse.StateStopped)
}
