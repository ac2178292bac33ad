package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

type runFlags struct {
	orderFlags
	order   string
	detach  bool
	timeout time.Duration
}

func (s *shell) machineRun() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run IMAGE [flags] [-- COMMAND...]",
		Short: "Place an order for a machine",
		Long: `Place an order for a machine. The workers of the region answer with quotes, the
best one is claimed, and the machine has started when this returns; or you are
told who said no and why.

An image is a name such as nginx or registry.example.com/app:v2; workers that
have it already are preferred. Image "host" runs a command of the worker's own
host: a program named relative to here, such as ./server, is looked up here.`,
		Example: `  bourse machine run nginx --region gru --port 80
  bourse machine run host --region gru -- ./server
  bourse machine run host -r gru,eu --vm-memory 1GiB -e MODE=fast -- sleep 600
  bourse machine run host --rm --require slots=2 --require zone=b -- ./job`,
		Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error { return s.runMachine(c.Context(), &f, args) },
	}
	f.bind(s, c)
	flags := c.Flags()
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID: a repetition with the same id finds the first one's machine")
	flags.BoolVarP(&f.detach, "detach", "d", false, "do not wait for the machine to be started")
	flags.DurationVar(&f.timeout, "wait-timeout", 5*time.Minute, "wait so `long` for the machine to be started")
	return c
}

func (s *shell) runMachine(ctx context.Context, f *runFlags, args []string) error {
	req, err := f.request(args)
	if err != nil {
		return err
	}
	if err := s.mountVolume(ctx, f, &req); err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order == "" {
		order, req.FirstTry = bourse.NewOrderID(), true // ours, so that a lost answer can be asked for again
	} else if err := order.Validate(); err != nil {
		return named("--order-id", err)
	}
	m, err := s.create(ctx, f.app, req, order)
	if err != nil {
		return s.explainCreate(err, f.app, order)
	}
	if !f.skipLaunch && !f.detach && !m.State.Settled() {
		reply, err := s.wait(ctx, f.app, m.ID, []string{machinesapi.StateSettled}, f.timeout)
		if err != nil {
			return err
		}
		m.State = reply.State
	}
	if s.json {
		return s.printJSON(m.Machine)
	}
	return s.printCreated(&m)
}

// mountVolume puts the volume of --volume into the request, by its id: the API
// knows no other name for it.
func (s *shell) mountVolume(ctx context.Context, f *runFlags, req *machinesapi.CreateMachine) error {
	if f.image.volume == "" {
		return nil
	}
	word, path, err := parseVolume(f.image.volume)
	if err != nil {
		return named("--volume", err)
	}
	region := bourse.Region("")
	if bourse.Region(f.region).Validate() == nil {
		region = bourse.Region(f.region)
	}
	id, err := s.freeVolume(ctx, f.app, word, region)
	if err != nil {
		return err
	}
	req.Config.Mounts = []bourse.Mount{{Volume: id, Path: path}}
	return nil
}

// create places the order. The app "default" needs no making: brokers know it.
func (s *shell) create(ctx context.Context, app string, req machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Created, error) {
	defer spin(s.Err, "placing order "+string(order))()
	return s.client().Create(ctx, bourse.AppName(app), req, order)
}

// explainCreate adds what to try after an order that was not filled, and
// shows who refused it.
func (s *shell) explainCreate(err error, app string, order bourse.OrderID) error {
	var refusals []bourse.Refusal
	if reply, ok := errors.AsType[*machinesapi.ReplyError](err); ok {
		order, refusals = cmp.Or(reply.OrderID, order), reply.Refusals
	}
	switch bourse.CodeOf(err) {
	case bourse.CodeInsufficient:
		if len(refusals) > 0 {
			if err := refusalTable(refusals).write(s.Err, s.Err.Width); err != nil {
				return err
			}
		}
		return hint(err, afterRefusals(refusals, order)...)
	case bourse.CodeFailedPrecondition:
		if len(refusals) > 0 {
			return hint(err, "the same without --reservation, or a new one: bourse reservation create")
		}
		return err
	case bourse.CodeNotFound:
		return hint(err, "bourse app create "+app)
	case bourse.CodeTimeout:
		return hint(err,
			"see what became of it: bourse order show "+string(order),
			"or the same again with --order-id "+string(order)+": it finds the machine if there is one")
	case bourse.CodeAlreadyExists:
		return hint(err, "another --name, or see it: bourse machine list -a "+app)
	default:
		return err
	}
}

// afterRefusals gives what to try when nobody has filled an order.
func afterRefusals(refusals []bourse.Refusal, order bourse.OrderID) []string {
	whole := "the whole decision: bourse order show " + string(order)
	switch {
	case onlyFor(bourse.RefusedImage, refusals) && refusals[0].Resource == bourse.ImagePull:
		return []string{"machines of image pull need a gateway: bourse serve worker --pull"}
	case onlyFor(bourse.RefusedImage, refusals):
		return []string{
			"is the image's name right? Machines of images need workers with containerd, run as root: bourse serve worker --help",
			"or a command of the host itself: bourse machine run host -- COMMAND",
		}
	case onlyFor(bourse.RefusedDriver, refusals):
		return []string{"fix what the workers say: none of them could start it", whole}
	}
	return []string{"another --region (or any), a smaller --vm-memory or --vm-cpus, or later", whole}
}

// onlyFor tells whether all workers said no for one reason.
func onlyFor(reason bourse.RefusalReason, refusals []bourse.Refusal) bool {
	return len(refusals) > 0 && !slices.ContainsFunc(refusals, func(r bourse.Refusal) bool { return r.Reason != reason })
}

func (s *shell) printCreated(m *machinesapi.Created) error {
	var f facts
	f.add("machine", string(m.ID)+"  "+m.Name)
	where := fmt.Sprintf("%s in region %s", m.State, m.Region)
	if m.Worker != "" {
		where += fmt.Sprintf(" on worker %s", m.Worker)
	}
	f.add("state", where)
	if m.Port > 0 {
		f.add("port", fmt.Sprint(m.Port))
	}
	f.add("order", string(m.OrderID))
	f.add("took", timing(m.Timing))
	if err := f.write(s.Out); err != nil {
		return err
	}
	if s.Out.TTY {
		s.say("\nits output: bourse machine logs" + appFlag(m.App) + " " + string(m.ID) + "\nwhy there:  bourse order show " + string(m.OrderID))
	}
	return nil
}

// timing shows the server's own account of the request.
func timing(t machinesapi.Timing) string {
	var total time.Duration
	var parts []string
	for _, name := range []string{"quote", "rank", "claim", "start"} {
		if d, ok := t[name]; ok {
			total += d
			parts = append(parts, name+" "+took(d))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	if d, ok := t["total"]; ok {
		total = d
	}
	return took(total) + " (" + strings.Join(parts, ", ") + ")"
}

// appFlag gives the flag that a hint must carry, none for the default app.
func appFlag(app bourse.AppName) string {
	if app == "" || app == defaultApp {
		return ""
	}
	return " -a " + string(app)
}
