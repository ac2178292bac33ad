package plans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/release"
)

// Carrier carries out plans while a person looks on.
type Carrier struct {
	Shell   *cli.Shell
	API     run.API
	Title   string      // of the plan: "release v4 of shop"
	Options run.Options // without Events and Abandon
	// GoOn are the commands that go on with what was left, or return from it.
	GoOn []string
	Done string // what has come of it, for a person; "": what the plan has changed
	// Signals receives what interrupts: the first signal also ends the context that
	// Carry gets, a second one ends all. nil: those of this process.
	Signals <-chan os.Signal
}

// Carry carries out a plan. Its error has what a person can do next; after an
// interrupt it is a [cli.Interrupted]. With --json the result is the last line.
func (c *Carrier) Carry(ctx context.Context, p *deploy.Plan) (run.Result, error) {
	cli.OutliveReaders() // a plan is not left half done because nobody reads how it goes
	show := Show(c.Shell, c.Title, p)
	over := make(chan struct{})
	o := c.Options
	o.Events, o.Abandon = show.Event, c.interrupts(ctx, show, over)
	result, err := run.Run(ctx, c.API, *p, o)
	close(over)
	show.End()
	p = &result.Plan
	left := VolumesLeft(p, &result)
	if c.Shell.JSON {
		_ = c.Shell.PrintLine(Line{Result: &result, VolumesLeft: left}) // who has closed it does not read
	} else if err != nil && len(left) > 0 {
		c.Shell.Note(cli.Clean(LeftText(p.App, left)))
	}
	if err != nil {
		return result, c.explain(ctx, p, &result, err)
	}
	if c.Shell.JSON {
		return result, nil
	}
	for _, name := range result.Silent {
		c.Shell.Note("warning: proxy " + cli.Clean(name) + " has not heard of everything yet")
	}
	_, err = fmt.Fprintf(c.Shell.Out, "%s  %s  %s in %s\n", cli.Clean(c.Title), string(cmp.Or(result.Status, release.Complete)), cmp.Or(c.Done, Summary(p)), elapsed(result.Took))
	if err == nil && len(left) > 0 {
		_, err = fmt.Fprintln(c.Shell.Out, cli.Clean(LeftText(p.App, left)))
	}
	if errors.Is(err, syscall.EPIPE) {
		err = nil
	}
	return result, err
}

// VolumesLeft returns the volumes that the machines which a run of a plan has destroyed leave behind.
func VolumesLeft(p *deploy.Plan, r *run.Result) []bourse.VolumeID {
	return p.VolumesLeft(func(i int) bool { return i < len(r.Steps) && r.Steps[i].State == run.Done })
}

// LeftText says in one line which volumes of an app are left, and how to remove them.
func LeftText(app bourse.AppName, left []bourse.VolumeID) string {
	words := []string{"bourse", "volume", "destroy", "-a", string(app)}
	for _, id := range left {
		words = append(words, string(id))
	}
	command := strings.Join(words, " ")
	if len(left) == 1 {
		return "1 volume is left, with its data; to remove it: " + command
	}
	return fmt.Sprintf("%d volumes are left, with their data; to remove them: %s", len(left), command)
}

// interrupts tells a person what becomes of a plan when ctx ends before over does, and
// returns a channel that is closed at the second interrupt.
func (c *Carrier) interrupts(ctx context.Context, show *Progress, over <-chan struct{}) <-chan struct{} {
	abandon := make(chan struct{})
	signals, stop := c.Signals, func() {}
	if signals == nil {
		own := make(chan os.Signal, 2) // so many are counted
		signal.Notify(own, os.Interrupt, syscall.SIGTERM)
		signals, stop = own, func() { signal.Stop(own) }
	}
	go func() {
		defer stop()
		ended := ctx.Done()
		var first time.Time
		for {
			select {
			case <-over:
				return
			case <-signals:
				if first.IsZero() {
					first = time.Now()
				} else if time.Since(first) > once {
					close(abandon)
					return
				}
			case <-ended:
				ended = nil
				show.Say(c.interruptedNote()...)
			}
		}
	}()
	return abandon
}

// once is how long after a signal another one is the same: programs such as timeout signal a
// process and then its group.
const once = 300 * time.Millisecond

func (c *Carrier) interruptedNote() []string {
	first := "interrupted: what was done is undone; Ctrl-C again leaves it as it is then"
	if c.Options.KeepOnFailure {
		first = "interrupted: what was done stays; Ctrl-C again waits for nothing more"
	}
	if len(c.GoOn) == 0 {
		return []string{first}
	}
	return []string{first, "  afterwards: " + strings.Join(c.GoOn, "  or  ")}
}

// explain makes of the error of a run what a person needs to know.
func (c *Carrier) explain(ctx context.Context, p *deploy.Plan, r *run.Result, err error) error {
	state, half := "everything is as it was before", r.Status == release.Interrupted
	over := errors.Is(err, run.ErrOvertaken)
	switch {
	case over:
		state = "it ended here, and what it had changed was left to the other"
	case len(r.Left) > 0:
		state = cli.Count(len(r.Left), "thing") + " could not be returned"
	case half:
		state = "it is neither as it was nor as it is to be"
	case !slices.ContainsFunc(r.Steps, func(o run.Outcome) bool { return o.State != "" }):
		state = "nothing was changed"
	}
	var left []string
	for i := range r.Left {
		left = append(left, r.Left[i].What)
	}
	if ctx.Err() != nil {
		for _, line := range left {
			c.Shell.Note("  " + cli.Clean(line))
		}
		if half && len(c.GoOn) > 0 { // there is nothing to go on with otherwise
			state += "; go on with: " + strings.Join(c.GoOn, " or ")
		}
		return cli.Interrupted(c.Title + " was interrupted: " + state)
	}
	how := "failed"
	if half && !over {
		how = "was left half done"
	}
	text := append([]string{c.Title + " " + how + ": " + bourse.MessageOf(err) + "; " + state}, left...)
	said := &bourse.Error{Code: bourse.CodeOf(err), Message: strings.Join(text, "\n")}
	if errors.Is(err, run.ErrLeased) {
		said.Err = run.ErrLeased
	}
	if over {
		said.Err = run.ErrOvertaken
		return cli.Beside(cli.Hint(said, "what the other has made of it: bourse status -a "+string(p.App), "the same again, if it is still wanted"))
	}
	return cli.Beside(cli.Hint(said, c.next(p, r, err)...))
}

// next are the things to do after a failure.
func (c *Carrier) next(p *deploy.Plan, r *run.Result, err error) []string {
	var out []string
	for i := range r.Left {
		if l := &r.Left[i]; l.GoOn != "" && !slices.Contains(out, l.GoOn) {
			out = append(out, l.GoOn)
		}
	}
	for i := range r.Failed {
		logs := "what it wrote: bourse machine logs -a " + string(p.App) + " " + string(r.Failed[i].Machine)
		if r.Failed[i].Machine != "" && !slices.Contains(out, logs) && there(p, r, r.Failed[i].Machine) {
			out = append(out, logs)
		}
	}
	if r.Status == release.Interrupted {
		return append(out, c.GoOn...)
	}
	if errors.Is(err, run.ErrLeased) {
		out = append(out, "how the other goes: bourse releases -a "+string(p.App), "when that has ended: the same again")
	}
	if len(out) == 0 {
		out = append(out, "fix what is said above, then the same again")
	}
	return out
}

// there reports whether a machine was there before the plan, and so is after it was
// undone.
func there(p *deploy.Plan, r *run.Result, id bourse.MachineID) bool {
	return slices.ContainsFunc(p.Steps, func(s deploy.Step) bool { return s.Machine == id }) || r.Status == release.Interrupted
}

// Owner describes where a command runs, what it does and since when, for those who wait for
// its leases. The API adds the name of the token.
func Owner(s *cli.Shell, doing string) string {
	text := fmt.Sprintf("%s, since %s UTC", doing, s.Now().UTC().Format(time.TimeOnly))
	host, err := os.Hostname()
	switch user := s.Getenv("USER"); {
	case err != nil:
		return text
	case user != "":
		host = user + "@" + host
	}
	return host + ", " + text
}
