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
	require, env       []string
	timeout            time.Duration
	image, payload     string
	stream             bool
	size               sizeFlags
}

func (s *shell) taskRun() *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:   "run NAME [PAYLOAD|-] [flags] | run --image IMAGE [--payload PAYLOAD|-] [-- COMMAND...]",
		Short: "Have a payload worked on and print the answer",
		Long: `Send a payload to a machine that stays warm for a task, and print what it
answers. The payload is the argument, or standard input for "-". Machines are
made warm by bourse machine run --task NAME.

With --image a machine is started for the payload alone: its program, the
image's own or COMMAND, reads the payload on standard input, what it prints is
the answer, and the machine is gone afterwards. The image "host" is the
worker's own host; any other is pulled if need be.

The exit status is 0 when the program answered, else the task's own, or 8 when
its time was over. A repetition with the same --order-id gets the first answer:
the work is not done twice.`,
		Example: `  bourse machine run host --task increment --task-concurrency 4 -r gru -- ./increment
  bourse task run increment '{"N":41}' -r gru --slots 1
  bourse task run resize - --timeout 2m < photo.jpg > small.jpg
  bourse task run --image busybox --payload - -- sha256sum < photo.jpg`,
		RunE: func(c *cobra.Command, args []string) error { return s.runTask(c.Context(), &f, args) },
	}
	s.bindApp(c, &f.app)
	flags := c.Flags()
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default any)")
	flags.Int64Var(&f.slots, "slots", 0, "so `many` slots of the worker while it runs; short for --require slots=N")
	flags.StringArrayVar(&f.require, "require", nil, "what the worker must have, `NAME=VALUE`; may be repeated")
	flags.DurationVar(&f.timeout, "timeout", bourse.DefaultTaskTimeout, "end the work after this `time`, at most 5m")
	flags.StringVar(&f.image, "image", "", "start a machine of this `image` for the payload")
	flags.StringVar(&f.payload, "payload", "", "the `payload` of an image's program, - for standard input")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment of an image's program, `NAME=VALUE`; may be repeated")
	f.size.bind(flags)
	flags.BoolVar(&f.stream, "stream", false, "print the answer as the program writes it")
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID: a repetition with the same id gets the first one's answer")
	s.completeRegions(c)
	return c
}

func (s *shell) runTask(ctx context.Context, f *taskFlags, args []string) error {
	req, payload, err := f.request(args)
	if err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order != "" {
		if err := order.Validate(); err != nil {
			return named("--order-id", err)
		}
	}
	if payload != "" {
		if err := s.taskPayload(&req, payload); err != nil {
			return err
		}
	}
	reply, streamed, err := s.callTask(ctx, f, req, order)
	if err != nil {
		return s.explainTask(err, f, req.Task)
	}
	if !streamed {
		return s.printTask(&reply)
	}
	return s.taskExit(&reply)
}

// callTask has the task run, and tells whether its answer was printed as it
// came.
func (s *shell) callTask(ctx context.Context, f *taskFlags, req machinesapi.RunTask, order bourse.OrderID) (machinesapi.TaskReply, bool, error) {
	if !f.stream || s.json {
		defer spin(s.Err, "running a task")()
		reply, err := s.client().RunTask(ctx, bourse.AppName(f.app), req, order)
		return reply, false, err
	}
	streamed := false
	reply, err := s.client().StreamTask(ctx, bourse.AppName(f.app), req, order, func(part []byte) {
		streamed = true
		_, _ = s.Out.Write(part) // who has closed it has seen enough
	})
	return reply, streamed, err
}

// request makes the API's request of flags and arguments, and gives the word
// that says where the payload is.
func (f *taskFlags) request(args []string) (req machinesapi.RunTask, payload string, err error) {
	req = machinesapi.RunTask{Region: f.region, Timeout: bourse.Duration(f.timeout)}
	if f.image == "" {
		payload, err = f.warm(&req, args)
	} else {
		payload, err = f.payload, f.cold(&req, args)
	}
	if err != nil {
		return req, "", err
	}
	if req.Requirements, err = parseRequirements(f.require); err != nil {
		return req, "", named("--require", err)
	}
	if f.slots != 0 {
		if req.Requirements == nil {
			req.Requirements = bourse.Requirements{}
		}
		req.Requirements["slots"] = bourse.Requirement{Count: f.slots}
	}
	if f.slots < 0 || f.slots > bourse.MaxAmount {
		return req, "", bourse.Errorf(bourse.CodeInvalid, "--slots %d: use 1 or more", f.slots)
	}
	if f.timeout <= 0 || f.timeout > bourse.MaxTaskTimeout {
		return req, "", bourse.Errorf(bourse.CodeInvalid, "--timeout %s: use up to %s", f.timeout, bourse.MaxTaskTimeout)
	}
	return req, payload, nil
}

// warm reads NAME [PAYLOAD].
func (f *taskFlags) warm(req *machinesapi.RunTask, args []string) (payload string, err error) {
	if len(args) < 1 || len(args) > 2 || f.payload != "" || len(f.env) > 0 || f.size != (sizeFlags{}) {
		return "", bourse.Errorf(bourse.CodeInvalid, "want NAME and at most one PAYLOAD; --payload, --env and the size are of --image")
	}
	req.Task = args[0]
	if len(args) == 2 {
		payload = args[1]
	}
	return payload, bourse.ValidateTaskName(req.Task)
}

// cold reads [COMMAND...]
func (f *taskFlags) cold(req *machinesapi.RunTask, args []string) (err error) {
	init := bourse.Init{Cmd: args}
	if f.image == bourse.ImageHost {
		localProgram(&init)
	}
	req.Image, req.Command = f.image, init.Cmd
	if req.Env, err = parsePairs(f.env); err != nil {
		return named("--env", err)
	}
	req.Guest, err = f.size.guest()
	return err
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
// refused it. task is the name of a warm one.
func (s *shell) explainTask(err error, f *taskFlags, task string) error {
	reply, told := errors.AsType[*machinesapi.ReplyError](err)
	switch bourse.CodeOf(err) {
	case bourse.CodeInsufficient:
		if told && len(reply.Refusals) > 0 {
			if err := refusalTable(reply.Refusals).write(s.Err, s.Err.Width); err != nil {
				return err
			}
		}
		switch {
		case task != "":
			return hint(err, "a machine that is warm for it: bourse machine run IMAGE -a "+f.app+" --task "+task, "or later, when a place is free")
		case told:
			return hint(err, afterRefusals(reply.Refusals, reply.OrderID)...)
		}
	case bourse.CodeTimeout:
		if told && reply.OrderID != "" {
			return hint(err, "the same again with --order-id "+string(reply.OrderID)+" tells how it ended; it is not run twice")
		}
	default:
	}
	return err
}

// printTask writes the answer as the program did; for a person, as lines.
func (s *shell) printTask(t *machinesapi.TaskReply) error {
	if s.json {
		if err := s.printJSON(t); err != nil {
			return err
		}
	} else if _, err := s.Out.Write(s.asLines(t.Bytes())); err != nil {
		return err
	}
	return s.taskExit(t)
}

func (s *shell) asLines(answer []byte) []byte {
	if s.Out.TTY && len(answer) > 0 && answer[len(answer)-1] != '\n' {
		return append(answer, '\n')
	}
	return answer
}

// taskExit ends the command as the task ended.
func (s *shell) taskExit(t *machinesapi.TaskReply) error {
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
