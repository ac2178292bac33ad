package plans

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Fit reports whether workers would accept the machines of one group, region and size that a plan
// creates. It is based on a quote for one of these machines, and does not reserve any capacity.
type Fit struct {
	Group  string        `json:"group,omitempty"`
	Region bourse.Region `json:"region,omitempty"`
	Count  int           `json:"count"` // number of machines
	// Workers lists the workers that would accept one of the machines, best first. It is empty if
	// there are none.
	Workers  []bourse.WorkerID `json:"workers,omitempty"`
	Refusals []bourse.Refusal  `json:"refusals,omitempty"`
	// Err is the message if the request for the quote failed; otherwise it is "".
	Err string `json:"error,omitempty"`

	config *bourse.Config
	cause  error // the error whose message is Err
}

// Quotes is the part of the API that returns quotes. *machinesapi.Client implements it.
type Quotes interface {
	Quote(ctx context.Context, app bourse.AppName, in machinesapi.CreateMachine) (machinesapi.QuoteReply, error)
}

// quoteConcurrency limits the number of concurrent requests for quotes.
const quoteConcurrency = 8

// Fits requests quotes for the machines that a plan creates: one quote for each
// combination of group, region and size.
func Fits(ctx context.Context, api Quotes, p *deploy.Plan) []Fit {
	type place struct {
		group  string
		region bourse.Region
		cpus   bourse.Guest
		on     bourse.WorkerID
	}
	var out []Fit
	known := map[place]int{}
	for i := range p.Steps {
		s := &p.Steps[i]
		c := s.Makes()
		if c == nil {
			continue
		}
		makes, _ := s.Do.(deploy.MakeMachine)
		k := place{group: s.Group, region: s.Region, on: makes.Worker}
		if c.Guest != nil {
			k.cpus = *c.Guest
		}
		at, ok := known[k]
		if !ok {
			config := *c
			config.Mounts, config.Standbys = nil, nil // omit references to volumes and machines, which may not exist yet
			if makes.Worker != "" {
				config.Requirements = config.Requirements.On(makes.Worker)
			} else if makes.Volume != nil {
				volume, _ := p.Steps[*makes.Volume].Do.(deploy.MakeVolume)
				if volume.Machine != nil {
					config.Requirements = volume.Machine.Requirements
				}
			}
			at = len(out)
			known[k] = at
			out = append(out, Fit{Group: s.Group, Region: s.Region, config: &config})
		}
		out[at].Count++
	}
	var g errgroup.Group
	g.SetLimit(quoteConcurrency)
	for i := range out {
		g.Go(func() error {
			out[i].ask(ctx, api, p.App)
			return nil
		})
	}
	_ = g.Wait() // errors are stored in out
	return out
}

func (f *Fit) ask(ctx context.Context, api Quotes, app bourse.AppName) {
	q, err := api.Quote(ctx, app, machinesapi.CreateMachine{Region: string(f.Region), Config: f.config})
	if err != nil {
		f.Err, f.cause = bourse.MessageOf(err), err
		return
	}
	for i := range q.Rounds {
		for _, r := range q.Rounds[i].Ranked {
			f.Workers = append(f.Workers, r.Worker)
		}
		f.Refusals = append(f.Refusals, q.Rounds[i].Refusals...)
	}
	if q.Outcome == bourse.OutcomeRefused {
		f.Workers = nil
	}
}

// Fit reports whether at least one worker would accept one of the machines.
func (f *Fit) Fit() bool { return len(f.Workers) > 0 }

// label describes the machines, for example "2 of group web in gru".
func (f *Fit) label() string {
	out := fmt.Sprintf("%d", f.Count)
	if f.Group != "" {
		out += " of group " + f.Group
	}
	if f.Region != "" {
		out += " in " + string(f.Region)
	}
	return out
}

// lines describes the result for the user.
func (f *Fit) lines() []string {
	switch {
	case f.Err != "":
		return []string{"does not fit: " + f.label() + ": " + f.Err}
	case f.Fit() && len(f.Workers) == 1:
		return []string{fmt.Sprintf("fits: %s: worker %s would accept one", f.label(), f.Workers[0])}
	case f.Fit():
		return []string{fmt.Sprintf("fits: %s: %d workers would accept one, best %s", f.label(), len(f.Workers), f.Workers[0])}
	}
	return append([]string{"does not fit: " + f.label() + ": no worker would accept one"}, f.reasons()...)
}

// reasons returns workers' refusals, one per line.
func (f *Fit) reasons() (out []string) {
	for i, r := range f.Refusals {
		if i == maxRefusals {
			return append(out, fmt.Sprintf("  and %d more", len(f.Refusals)-i))
		}
		out = append(out, fmt.Sprintf("  %s: %s", r.Worker, r.Detail))
	}
	return out
}

const maxRefusals = 5

// FirstWithoutRoom returns the first element of fits whose machines no worker would accept. It returns
// nil if all machines fit.
func FirstWithoutRoom(fits []Fit) *Fit {
	for i := range fits {
		if !fits[i].Fit() {
			return &fits[i]
		}
	}
	return nil
}

// NoRoomError returns an error if there are machines that no worker would accept, and nil
// otherwise. The error omits the refusals, because the user has seen them.
func NoRoomError(fits []Fit) error {
	if f := FirstWithoutRoom(fits); f != nil {
		return f.short()
	}
	return nil
}

// RefusedError is like [NoRoomError], but the error includes each worker's refusal.
func RefusedError(fits []Fit) error {
	if f := FirstWithoutRoom(fits); f != nil {
		return f.short(f.reasons()...)
	}
	return nil
}

func (f *Fit) short(reasons ...string) error {
	if f.cause != nil {
		return f.cause
	}
	text := fmt.Sprintf("no worker would accept a machine of group %s in %s: nothing was changed", cmp.Or(f.Group, "-"), cmp.Or(string(f.Region), "any region"))
	err := bourse.Errorf(bourse.CodeInsufficient, "%s", strings.Join(append([]string{text}, reasons...), "\n"))
	return cli.Hint(err, cli.AfterRefusals(f.Refusals)...)
}
