package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
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
// another. A deploy that changes nothing is planned and carried out, too.
func benchDeploy(ctx context.Context, lab *Lab, out Figures) error {
	client, _, err := lab.market(ctx, "gru", "gru", "gru", "gru")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
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
	if _, err := carryOut("0"); err != nil {
		return err
	}
	if err := os.Setenv(bootVariable, boots.String()); err != nil {
		return err
	}
	defer os.Unsetenv(bootVariable)
	var took, own, idle samples
	for n := range 5 {
		whole, err := carryOut(fmt.Sprint(n + 1))
		if err != nil {
			return err
		}
		nothing, err := carryOut(fmt.Sprint(n + 1))
		if err != nil {
			return err
		}
		alone, err := byItself(ctx, self)
		if err != nil {
			return err
		}
		took, own, idle = append(took, whole), append(own, alone), append(idle, nothing)
	}
	path := 1 + math.Ceil(float64(machines-1)/lanes) // the first goes alone
	out["deploy_ms"], out["deploy_nothing_ms"] = ms(took.quantile(0.5)), ms(idle.quantile(0.5))
	out["deploy_ratio"] = out["deploy_ms"] / (path * ms(own.quantile(0.5)))
	return nil
}
