package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// taskFlags say what a task needs and how long it may take.
type taskFlags struct {
	app, region, order string
	slots              int64
	require            []string
	timeout            time.Duration
}

func (s *shell) taskRun() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:   "run NAME [PAYLOAD|-] [flags]",
		Short: "Send a payload to a warm machine and print its answer",
		Long: `Send a payload to a machine that stays warm for a task, and print what it
answers. The payload is the argument, or standard input for "-". Machines are
made warm by bourse machine run --task NAME.

The exit status is 0 when the program answered, else the task's own, or 8 when
its time was over. A repetition with the same --order-id gets the first answer:
the work is not done twice.`,
		Example: `  bourse machine run host --task increment --task-concurrency 4 -r gru -- ./increment
  bourse task run increment '{"N":41}' -r gru --slots 1
  bourse task run resize - --timeout 2m < photo.jpg > small.jpg`,
		Args: between(1, 2),
		RunE: func(c *cobra.Command, args []string) error { return s.runTask(c.Context(), &f, args) },
	}
	s.bindApp(c, &f.app)
	flags := c.Flags()
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default any)")
	flags.Int64Var(&f.slots, "slots", 0, "so `many` slots of the worker while it runs; short for --require slots=N")
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`; may be repeated")
	flags.DurationVar(&f.timeout, "timeout", bourse.DefaultTaskTimeout, "end the work after this `time`, at most 5m")
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID: a repetition with the same id gets the first one's answer")
	s.completeRegions(c)
	return c
}

// between wants min to most arguments.
func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return wanted(c)
		}
		return nil
	}
}

func (s *shell) runTask(ctx context.Context, f *taskFlags, args []string) error {
	req, err := f.request(args[0])
	if err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order != "" {
		if err := order.Validate(); err != nil {
			return named("--order-id", err)
		}
	}
	if len(args) > 1 {
		if err := s.taskPayload(&req, args[1]); err != nil {
			return err
		}
	}
	stop := spin(s.Err, "running task "+args[0])
	reply, err := s.client().RunTask(ctx, bourse.AppName(f.app), req, order)
	stop()
	if err != nil {
		return s.explainTask(err, f, args[0])
	}
	return s.printTask(&reply)
}

func (f *taskFlags) request(task string) (machinesapi.RunTask, error) {
	req := machinesapi.RunTask{Task: task, Region: f.region, Timeout: bourse.Duration(f.timeout)}
	if err := bourse.ValidateTaskName(task); err != nil {
		return req, err
	}
	var err error
	if req.Requirements, err = parseRequirements(f.require); err != nil {
		return req, named("--require", err)
	}
	if f.slots != 0 {
		if req.Requirements == nil {
			req.Requirements = bourse.Requirements{}
		}
		req.Requirements["slots"] = bourse.Requirement{Count: f.slots}
	}
	if f.slots < 0 || f.slots > bourse.MaxAmount {
		return req, bourse.Errorf(bourse.CodeInvalid, "--slots %d: use 1 or more", f.slots)
	}
	if f.timeout <= 0 || f.timeout > bourse.MaxTaskTimeout {
		return req, bourse.Errorf(bourse.CodeInvalid, "--timeout %s: use up to %s", f.timeout, bourse.MaxTaskTimeout)
	}
	return req, nil
}

// taskPayload reads the payload: JSON is sent as such, all else as it is.
func (s *shell) taskPayload(req *machinesapi.RunTask, word string) error {
	payload := []byte(word)
	if word == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(s.In, bourse.MaxPayload+1)); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "read the payload: %w", err)
		}
	}
	if len(payload) > bourse.MaxPayload {
		return bourse.Errorf(bourse.CodeInvalid, "the payload has more than %d bytes", bourse.MaxPayload)
	}
	if word != "-" && json.Valid(payload) && payload[0] != '"' {
		req.Payload = payload
	} else {
		req.PayloadBase64 = payload
	}
	return nil
}

// explainTask adds what to try after a task that was not run, and shows who
// refused it.
func (s *shell) explainTask(err error, f *taskFlags, task string) error {
	reply, told := errors.AsType[*machinesapi.ReplyError](err)
	switch bourse.CodeOf(err) {
	case bourse.CodeInsufficient:
		if told && len(reply.Refusals) > 0 {
			if err := refusalTable(reply.Refusals).write(s.Err, s.Err.Width); err != nil {
				return err
			}
		}
		return hint(err, "a machine that is warm for it: bourse machine run IMAGE -a "+f.app+" --task "+task, "or later, when a place is free")
	case bourse.CodeTimeout:
		if told && reply.OrderID != "" {
			return hint(err, "the same again with --order-id "+string(reply.OrderID)+" tells how it ended; it is not run twice")
		}
	default:
	}
	return err
}

// printTask writes the answer as the program did.
func (s *shell) printTask(t *machinesapi.TaskReply) error {
	if s.json {
		if err := s.printJSON(t); err != nil {
			return err
		}
	} else if _, err := s.Out.Write(t.Bytes()); err != nil {
		return err
	}
	switch {
	case t.OK:
		return nil
	case !s.json:
		s.say("task " + string(t.ID) + " on worker " + string(t.Worker) + ": " + t.Error)
	}
	switch {
	case t.End == bourse.TaskTimeout:
		return remoteExit(exits[bourse.CodeTimeout])
	case t.ExitCode > 0:
		return remoteExit(t.ExitCode)
	}
	return remoteExit(exits[bourse.CodeInternal])
}
