package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	carry "github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/machinesapi"
)

const (
	bootVariable = "BOURSE_BENCH_BOOT" // how long the program needs before it listens
	boots        = time.Second         // as servers of some size do
)

// benchDeploy: a rolling update of 20 machines over 4 workers, 5 at a time, over what the
// same program needs to stop, to start and to listen, as often as one update waits for
// another.
func benchDeploy(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru", "gru", "gru")
	self, unnamed := os.Executable()
	if err := errors.Join(err, unnamed); err != nil {
		return err
	}
	const machines, lanes = 20, 5
	carryOut := func(version string) (time.Duration, error) {
		begin := time.Now()
		c := bourse.Config{
			Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1}, Init: bourse.Init{Exec: []string{self, "-answer"}},
			Env: map[string]string{"VERSION": version, bootVariable: boots.String()},
		}
		c.Checks = json.RawMessage(`{"listens":{"type":"tcp","interval":"1s","timeout":"1s"}}`)
		list, _, err := client.Machines(ctx, app, machinesapi.ListMachines{})
		if err != nil {
			return 0, err
		}
		plan := deploy.Make(deploy.App{
			Name: app, Strategy: deploy.Rolling, MaxUnavailable: lanes, Wait: bourse.Duration(time.Minute),
			Groups: []deploy.Group{{Name: "app", Config: c, Smoke: true, Counts: []deploy.Count{{Region: "gru", Count: machines}}}},
		}, deploy.State{App: app, Machines: list}, deploy.Options{})
		_, err = carry.Run(ctx, carry.Over(client, app), plan, carry.Options{})
		return time.Since(begin), err
	}
	_, err = carryOut("0")
	if err := errors.Join(err, os.Setenv(bootVariable, boots.String())); err != nil {
		return err
	}
	defer os.Unsetenv(bootVariable)
	var took, own samples
	for n := range 5 {
		whole, err := carryOut(fmt.Sprint(n + 1))
		alone, unmeasured := byItself(ctx, self)
		if err := errors.Join(err, unmeasured); err != nil {
			return err
		}
		took, own = append(took, whole), append(own, alone)
	}
	path := 1 + math.Ceil(float64(machines-1)/lanes) // the first goes alone
	out["deploy_ms"], out["deploy_ratio"] = ms(took.quantile(0.5)), ms(took.quantile(0.5))/(path*ms(own.quantile(0.5)))
	return nil
}

// benchDeploySame: the command line, from its start to its end: a deploy of 100 machines that are as they are wanted,
// and the plan of a change of 1 000, which are stopped.
func benchDeploySame(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru", "gru", "gru")
	file := filepath.Join(lab.dir, "fly.toml")
	unwritten := os.WriteFile(file, []byte("primary_region = \"gru\"\nbuild = { image = \"host\" }\nprocesses = { app = \"sleep 600\" }\n"), 0o600)
	if err := errors.Join(err, unwritten); err != nil {
		return err
	}
	deploy := func(says string, flags ...string) func() error {
		return func() error {
			c := exec.CommandContext(ctx, lab.binary, append([]string{"deploy", "--api", client.BaseURL, "--config", file}, flags...)...)
			if said, err := c.CombinedOutput(); !bytes.Contains(said, []byte(says)) { // a plan of changes ends with status 2
				return fmt.Errorf("%s: %w: %s", c, err, said)
			}
			return nil
		}
	}
	for app, machines := range map[bourse.AppName]int{"hundred": 100, "thousand": 1000} {
		err := deploy("complete", "--ha=false", "--app", string(app))()
		list, _, unread := client.Machines(ctx, app, machinesapi.ListMachines{})
		if err := errors.Join(err, unread); err != nil {
			return err
		}
		one := machinesapi.CreateMachine{Region: "gru", Config: list[0].Config, SkipLaunch: machines > 100}
		if _, err := together(8, machines-1, func(int) error { _, err := client.Create(ctx, app, one, ""); return err }); err != nil {
			return err
		}
	}
	var same, plan samples
	for range 9 {
		if err := errors.Join(same.measure(deploy("nothing to do", "--app", "hundred")), plan.measure(deploy("1000 to update", "--app", "thousand", "--plan", "-e", "MODE=fast"))); err != nil {
			return err
		}
	}
	out["deploy_same_100_ms"], out["deploy_plan_1000_ms"] = ms(same.quantile(0.5)), ms(plan.quantile(0.5))
	return nil
}
