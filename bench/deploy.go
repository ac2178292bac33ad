package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	carry "github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

// bootVariable is the environment variable that determines how long a machine's program waits
// before it starts listening.
const bootVariable = "BOURSE_BENCH_BOOT"

// greeting is the body of every response from a machine's program.
var greeting = []byte(strings.Repeat("hello from a machine\n", 12))

// serve is the program that machines run. It serves HTTP on $PORT.
func serve() error {
	boot, _ := time.ParseDuration(os.Getenv(bootVariable)) // 0 if the variable is not set
	time.Sleep(boot)
	s := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write(greeting)
	})}
	return s.ListenAndServe()
}

// benchDeploy measures a rolling update of 20 machines on 4 workers, 5 at a time. The time is
// divided by the length of the critical path: the number of updates that must run sequentially,
// times the interval between stopping the program and the moment its replacement listens.
func benchDeploy(ctx context.Context, lab *Lab, out Figures) error {
	const machines, lanes, boot = 20, 5, time.Second
	client, _, err := lab.market(ctx, []string{"gru", "gru", "gru", "gru"})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	update := func(version int) error {
		c := bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{self, "-serve"}},
			Env: map[string]string{"VERSION": fmt.Sprint(version), bootVariable: boot.String()},
		}
		c.Checks = json.RawMessage(`{"listens":{"type":"tcp","interval":"1s","timeout":"1s"}}`)
		list, _, err := client.Machines(ctx, app, machinesapi.ListMachines{})
		if err != nil {
			return err
		}
		plan := deploy.Make(deploy.App{
			Name: app, Strategy: deploy.Rolling, MaxUnavailable: lanes, Wait: bourse.Duration(time.Minute),
			Groups: []deploy.Group{{Name: "app", Config: c, Smoke: true, Counts: []deploy.Count{{Region: "gru", Count: machines}}}},
		}, deploy.State{App: app, Machines: list}, deploy.Options{})
		_, err = carry.Run(ctx, carry.NewAPI(client, app), plan, carry.Options{})
		return err
	}
	if err := update(0); err != nil {
		return err
	}
	var rolling, restart samples
	for n := range 5 {
		if err := rolling.measure(func() error { return update(n + 1) }); err != nil {
			return err
		}
		took, err := restartAlone(ctx, self, boot)
		if err != nil {
			return err
		}
		restart = append(restart, took)
	}
	path := 1 + math.Ceil(float64(machines-1)/lanes) // the first machine is updated alone
	out["deploy_ms"], out["floor_restart_ms"] = rolling.median(), restart.median()
	out["deploy_ratio"] = rolling.median() / (path * restart.median())
	return nil
}

// restartAlone measures a restart of the program without Bourse: the time from the signal that
// stops it until the next process listens on the port.
func restartAlone(ctx context.Context, self string, boot time.Duration) (time.Duration, error) {
	at, err := freeAddress(ctx)
	if err != nil {
		return 0, err
	}
	_, port, _ := net.SplitHostPort(at)
	start := func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, self, "-serve")
		cmd.Env = append(os.Environ(), "PORT="+port, bootVariable+"="+boot.String())
		return cmd, errors.Join(cmd.Start(), until(ctx, 10*time.Second, "the program listens", func() bool { return accepts(at) }))
	}
	cmd, err := start()
	if err != nil {
		return 0, err
	}
	from := time.Now()
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait() // returns the signal as an error
	if cmd, err = start(); err != nil {
		return 0, err
	}
	took := time.Since(from)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return took, nil
}

// freeAddress returns a loopback address with a free port.
func freeAddress(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func accepts(at string) bool {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", at)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}
