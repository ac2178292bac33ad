package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// OneWorker reports that all of a group's machines in a region are on the same worker,
// for example after the other workers were drained.
type OneWorker struct {
	Worker bourse.WorkerID `json:"worker"`
	Moves  []Move          `json:"moves"` // moves that spread the machines over other workers that would accept them
}

// Move is a suggested move of a machine to another worker.
type Move struct {
	Machine bourse.MachineID `json:"machine"`
	To      bourse.WorkerID  `json:"to"`
	Start   bool             `json:"start,omitempty"` // start the machine first, because a stopped one without a volume cannot be moved to a named worker
}

// oneWorker suggests moves if all of the group's machines are on one worker. It returns nil if they
// are on several workers or on an unreachable one, if there are fewer than two machines, or if no
// other worker would accept any of them.
func oneWorker(ctx context.Context, s *cli.Shell, app bourse.AppName, g *GroupStatus, machines []machinesapi.Machine) *OneWorker {
	var all []*machinesapi.Machine
	for i := range machines {
		m := &machines[i]
		config := m.Known()
		if config == nil || m.Region != g.Region || config.Metadata[deploy.KeyPlatform] != deploy.Platform || config.Metadata[deploy.KeyGroup] != g.Group ||
			len(config.Standbys) > 0 || m.State == bourse.StateDestroyed || m.State == bourse.StateDestroying {
			continue
		}
		if all = append(all, m); m.Worker == "" || m.Worker != all[0].Worker || m.HostStatus != "" && m.HostStatus != machinesapi.HostOK {
			return nil
		}
	}
	if len(all) < 2 {
		return nil
	}
	config := *all[0].Known()
	config.Mounts, config.Standbys = nil, nil // the quote must ignore the volumes, which a move copies, and the standbys
	quoted, err := s.Client().Quote(ctx, app, machinesapi.CreateMachine{Region: string(g.Region), Config: &config})
	if err != nil || quoted.Outcome == bourse.OutcomeRefused {
		return nil
	}
	out := &OneWorker{Worker: all[0].Worker}
	workers := []bourse.WorkerID{out.Worker}
	for i := range quoted.Rounds {
		for _, r := range quoted.Rounds[i].Ranked {
			if r.Worker != out.Worker {
				workers = append(workers, r.Worker)
			}
		}
	}
	running := func(m *machinesapi.Machine) bool { return m.State == bourse.StateStarted }
	slices.SortStableFunc(all, func(a, b *machinesapi.Machine) int { // the first machine stays, preferably a stopped one
		return cmp.Compare(boolToInt(running(a)), boolToInt(running(b)))
	})
	for i, m := range all {
		if to := workers[i%len(workers)]; to != out.Worker {
			out.Moves = append(out.Moves, Move{Machine: m.ID, To: to, Start: !running(m) && len(m.Known().Mounts) == 0})
		}
	}
	if len(out.Moves) == 0 {
		return nil
	}
	return out
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// maxMoves limits the number of suggested commands.
const maxMoves = 5

func (o *OneWorker) commands(app bourse.AppName) []string {
	var out []string
	for _, m := range o.Moves {
		text := fmt.Sprintf("bourse machine move -a %s %s --to %s --yes", app, m.Machine, m.To)
		if m.Start {
			text = fmt.Sprintf("bourse machine start -a %s %s && ", app, m.Machine) + text
		}
		out = append(out, text)
	}
	return cli.Bounded(out, maxMoves)
}
