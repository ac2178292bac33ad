package watch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func machine(n int, services string) bourse.Machine {
	return bourse.Machine{
		ID: bourse.MachineID(fmt.Sprintf("%06x%08x", n, 1)), State: bourse.StateStarted, Region: "gru", App: "web",
		Config: bourse.Config{StoredConfig: bourse.StoredConfig{Services: json.RawMessage(services)}},
	}
}

func TestDecide(t *testing.T) {
	const (
		web     = `[{"internal_port":80,"autostop":"stop"}]`
		suspend = `[{"internal_port":80,"autostop":"suspend"}]`
		one     = `[{"internal_port":80,"autostop":"stop","min_machines_running":1}]`
	)
	other := func(n int, change func(*bourse.Machine)) bourse.Machine {
		m := machine(n, one)
		if change != nil {
			change(&m)
		}
		return m
	}
	for name, c := range map[string]struct {
		services string
		change   func(*bourse.Machine)
		sight    func(*IdleInput)
		act      IdleAct
		why      string
		look     time.Duration // time after noon; 0 if it must not be set
	}{
		"idle for long":                         {services: web, act: Stop, why: "idle for 1h0m0s"},
		"to be suspended":                       {services: suspend, act: Suspend, why: "idle for 1h0m0s"},
		"no service":                            {services: `[]`, why: "autostop is off"},
		"autostop is off":                       {services: `[{"internal_port":80}]`, why: "autostop is off"},
		"one of two services disables autostop": {services: `[{"internal_port":80,"autostop":"stop"},{"internal_port":81}]`, why: "autostop is off"},
		"one service stops, one suspends":       {services: `[{"internal_port":80,"autostop":"suspend"},{"internal_port":81,"autostop":true}]`, act: Stop, why: "idle for 1h0m0s"},
		"stopped":                               {services: web, change: func(m *bourse.Machine) { m.State = bourse.StateStopped }, why: "it is stopped"},
		"starting":                              {services: web, change: func(m *bourse.Machine) { m.State = bourse.StateStarting }, why: "it is starting"},
		"warm for a task":                       {services: web, change: func(m *bourse.Machine) { m.Config.Task = &bourse.TaskConfig{} }, why: "it is warm for a task"},
		"being updated":                         {services: web, change: func(m *bourse.Machine) { m.Next = &bourse.NextVersion{} }, why: "it is being updated"},
		"leased":                                {services: web, change: func(m *bourse.Machine) { m.Lease = &bourse.Lease{ExpiresAt: noon.Add(time.Second)} }, why: "it is leased", look: time.Second},
		"its lease has ended":                   {services: web, change: func(m *bourse.Machine) { m.Lease = &bourse.Lease{ExpiresAt: noon} }, act: Stop, why: "idle for 1h0m0s"},
		"something is in progress":              {services: web, sight: func(s *IdleInput) { s.Uses.Busy = true }, why: "it is in use"},
		"used just now":                         {services: web, sight: func(s *IdleInput) { s.Uses.Last = noon }, why: "it is in use", look: time.Minute},
		"unused for long enough":                {services: web, sight: func(s *IdleInput) { s.Uses.Last = noon.Add(-time.Minute) }, act: Stop, why: "idle for 1m0s"},
		"held":                                  {services: web, sight: func(s *IdleInput) { s.Uses.Until = noon.Add(time.Hour) }, why: "it is in use", look: time.Hour},
		"just started":                          {services: web, sight: func(s *IdleInput) { s.Started = noon.Add(-time.Second) }, why: "it is in use", look: 59 * time.Second},
		"the only one that should run":          {services: one, why: "the app must keep 1 running in gru", look: time.Minute},
		"a machine with a lower id runs":        {services: one, sight: func(s *IdleInput) { s.Others = []bourse.Machine{other(1, nil)} }, act: Stop, why: "idle for 1h0m0s"},
		"a machine with a higher id runs":       {services: one, sight: func(s *IdleInput) { s.Others = []bourse.Machine{other(9, nil)} }, why: "the app must keep 1 running in gru", look: time.Minute},
		"the lower one is stopped": {services: one, sight: func(s *IdleInput) {
			s.Others = []bourse.Machine{other(1, func(m *bourse.Machine) { m.State = "stopped" })}
		}, why: "the app must keep 1 running in gru", look: time.Minute},
		"the lower one is cordoned": {services: one, sight: func(s *IdleInput) {
			s.Others = []bourse.Machine{other(1, func(m *bourse.Machine) { m.Cordoned = true })}
		}, why: "the app must keep 1 running in gru", look: time.Minute},
		"the lower one is in another region": {services: one, sight: func(s *IdleInput) {
			s.Others = []bourse.Machine{other(1, func(m *bourse.Machine) { m.Region = "mad" })}
		}, why: "the app must keep 1 running in gru", look: time.Minute},
		"the lower one serves something else": {services: one, sight: func(s *IdleInput) { s.Others = []bourse.Machine{machine(1, `[{"internal_port":81}]`)} }, why: "the app must keep 1 running in gru", look: time.Minute},
		"the lower one serves nothing":        {services: one, sight: func(s *IdleInput) { s.Others = []bourse.Machine{machine(1, `[]`)} }, why: "the app must keep 1 running in gru", look: time.Minute},
		"the others are unknown":              {services: one, sight: func(s *IdleInput) { s.Unknown = true }, why: "the state of the app's other machines is unknown", look: time.Minute},
		"the others do not matter":            {services: web, sight: func(s *IdleInput) { s.Unknown = true }, act: Stop, why: "idle for 1h0m0s"},
		"in the primary region":               {services: one, change: primary("gru"), why: "the app must keep 1 running in gru", look: time.Minute},
		"in another region than the primary":  {services: one, change: primary("mad"), act: Stop, why: "idle for 1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(5, c.services)
			if c.change != nil {
				c.change(&m)
			}
			s := &IdleInput{Machine: &m, Services: workload.Services(&m.Config), Uses: Uses{Last: noon.Add(-time.Hour)}, Started: noon.Add(-2 * time.Hour)}
			if c.sight != nil {
				c.sight(s)
			}
			want := IdleDecision{Act: c.act, Why: c.why, Others: strings.Contains(c.why, "running in") || strings.Contains(c.why, "is unknown")}
			if c.look > 0 {
				want.Look = noon.Add(c.look)
			}
			if got := decideIdle(s, noon, time.Minute); got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		})
	}
}

func primary(region string) func(*bourse.Machine) {
	return func(m *bourse.Machine) { m.Config.Env = map[string]string{primaryRegion: region} }
}

// A machine is never stopped while it is held, leased, being updated or just started.
// If decideIdle returns a time for the next decision, the machine is not stopped before
// that time.
func TestDecideSparesWhatIsInUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := func(name string) time.Time {
			return noon.Add(time.Duration(rapid.IntRange(-200, 200).Draw(t, name)) * time.Second)
		}
		after := time.Duration(rapid.IntRange(1, 100).Draw(t, "after")) * time.Second
		m := machine(5, `[{"internal_port":80,"autostop":"`+rapid.SampledFrom([]string{"off", "stop", "suspend"}).Draw(t, "autostop")+`"}]`)
		m.State = rapid.SampledFrom(bourse.States()).Draw(t, "state")
		if rapid.Bool().Draw(t, "leased") {
			m.Lease = &bourse.Lease{ExpiresAt: at("lease")}
		}
		if rapid.Bool().Draw(t, "updated") {
			m.Next = &bourse.NextVersion{}
		}
		s := &IdleInput{
			Machine: &m, Services: workload.Services(&m.Config), Started: at("started"),
			Uses: Uses{Last: at("last"), Until: at("until"), Busy: rapid.Bool().Draw(t, "busy")},
		}
		v := decideIdle(s, noon, after)
		spared := !m.Lease.Expired(noon) || m.Next != nil || m.State != bourse.StateStarted || s.Uses.Busy || s.Uses.Until.After(noon) ||
			noon.Sub(s.Uses.Last) < after || noon.Sub(s.Started) < after || workload.AutostopOf(s.Services) == workload.AutostopOff
		if (v.Act == KeepRunning) != spared {
			t.Fatalf("%+v, spared: %v", v, spared)
		}
		if v.Look.IsZero() {
			return
		}
		if v.Act != KeepRunning || !v.Look.After(noon) {
			t.Fatalf("%+v: the next decision is not needed, or in the past", v)
		}
		if early := decideIdle(s, v.Look.Add(-1), after); early.Act != KeepRunning {
			t.Fatalf("%+v, but just before the next decision %+v", v, early)
		}
	})
}

// If the owners of an app's machines see the same view and act at the same time, the
// required number of machines keeps running.
func TestDecideLeavesEnoughRunning(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(0, 4).Draw(t, "min_machines_running")
		var all []bourse.Machine
		for i := range rapid.IntRange(1, 8).Draw(t, "machines") {
			m := machine(i+1, fmt.Sprintf(`[{"internal_port":80,"autostop":"stop","min_machines_running":%d}]`, least))
			m.Region = rapid.SampledFrom([]bourse.Region{"gru", "mad"}).Draw(t, "region")
			m.State = rapid.SampledFrom([]bourse.State{"started", "started", "stopped", "suspended", "starting"}).Draw(t, "state")
			all = append(all, m)
		}
		before, after := map[bourse.Region]int{}, map[bourse.Region]int{}
		for i, m := range all {
			if m.State != bourse.StateStarted {
				continue
			}
			before[m.Region]++
			s := &IdleInput{Machine: &all[i], Services: workload.Services(&all[i].Config), Uses: Uses{Last: noon.Add(-time.Hour)}, Others: slices.Clone(all)}
			if decideIdle(s, noon, time.Minute).Act == KeepRunning {
				after[m.Region]++
			}
		}
		for region, n := range before {
			if want := min(n, least); after[region] != want {
				t.Fatalf("%s: %d of %d keep running, want %d", region, after[region], n, want)
			}
		}
	})
}
