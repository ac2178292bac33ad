package machine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/cli/place"
	"github.com/bourse-dev/bourse/machinesapi"
)

// taskFlags are the flags of "task run".
type taskFlags struct {
	app, region, order string
	slots              int64
	require, env       []string
	timeout            time.Duration
	image, payload     string
	stream             bool
	size               place.Size
}

func newTaskRun(s *cli.Shell) *cobra.Command {
	var f taskFlags
	c := &cobra.Command{
		Use:   "run NAME [PAYLOAD|-] [flags] | run --image IMAGE [--payload PAYLOAD|-] [-- COMMAND...]",
		Short: "Run a task on a payload and print the answer",
		Long: `Send a payload to a machine that is warm for a task, and print its answer. The
payload is the argument, or standard input if the argument is "-". To create warm
machines, run: bourse machine run --task NAME.

With --image, a machine is started only for this payload. Its program, which is
COMMAND or the image's own, reads the payload on standard input, and its output is
the answer. The machine is then destroyed. The image "host" runs COMMAND directly on
the worker's host; other images are pulled if necessary.

The exit status is 0 if the program answered, 8 if it exceeded the timeout, and
otherwise the program's own. If you repeat the command with the same --order-id, you
get the first answer again, and the task does not run twice.`,
		Example: `  bourse machine run host --task increment --task-concurrency 4 -r gru -- ./increment
  bourse task run increment '{"N":41}' -r gru --slots 1
  bourse task run resize - --timeout 2m < photo.jpg > small.jpg
  bourse task run --image busybox --payload - -- sha256sum < photo.jpg`,
		ValidArgsFunction: completeTask(s, &f.app),
		RunE:              func(c *cobra.Command, args []string) error { return runTask(c.Context(), s, &f, args) },
	}
	s.BindApp(c, &f.app)
	flags := c.Flags()
	flags.StringVarP(&f.region, "region", "r", "", "`region`, or a list in order of preference such as gru,mad,any (default: any)")
	flags.Int64Var(&f.slots, "slots", 0, "`number` of the worker's slots to use while the task runs; short for --require slots=N")
	flags.StringArrayVar(&f.require, "require", nil, "requirement on the worker, `NAME=VALUE`; may be repeated")
	flags.DurationVar(&f.timeout, "timeout", bourse.DefaultTaskTimeout, "`time` after which the task is terminated, at most 5m")
	flags.StringVar(&f.image, "image", "", "`image` to start a machine with, only for this payload")
	flags.StringVar(&f.payload, "payload", "", "`payload` for the image's program, or - for standard input")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "environment variable for the image's program, `NAME=VALUE`; may be repeated")
	f.size.Bind(flags)
	flags.BoolVar(&f.stream, "stream", false, "print the answer as the program writes it")
	flags.StringVar(&f.order, "order-id", "", "`id` of the order, a ULID; repeating the command with the same id returns the same answer")
	s.CompleteRegions(c)
	cli.CompleteFlag(c, "image", s.Images)
	return c
}

func runTask(ctx context.Context, s *cli.Shell, f *taskFlags, args []string) error {
	req, payload, err := f.request(args)
	if err != nil {
		return err
	}
	order := bourse.OrderID(f.order)
	if order != "" {
		if err := order.Validate(); err != nil {
			return cli.FlagError("--order-id", err)
		}
	}
	if payload != "" {
		if err := readPayload(s, &req, payload); err != nil {
			return err
		}
	}
	reply, streamed, err := call(ctx, s, f, req, order)
	if err != nil {
		return explain(s, err, f, req.Task)
	}
	if !streamed {
		return printReply(s, &reply)
	}
	return exitOf(s, &reply)
}

// call runs the task. It also reports whether the answer has already been printed.
func call(ctx context.Context, s *cli.Shell, f *taskFlags, req machinesapi.RunTask, order bourse.OrderID) (machinesapi.TaskReply, bool, error) {
	if !f.stream || s.JSON {
		defer cli.Spin(s.Err, "running a task")()
		reply, err := s.Client().RunTask(ctx, bourse.AppName(f.app), req, order)
		return reply, false, err
	}
	streamed := false
	reply, err := s.Client().StreamTask(ctx, bourse.AppName(f.app), req, order, func(part []byte) {
		streamed = true
		_, _ = s.Out.Write(part) // if standard output is closed, nobody wants the rest of the answer
	})
	return reply, streamed, err
}

// request builds the API request from flags and arguments. It also returns the payload
// argument, which may be "-" for standard input.
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
	if req.Requirements, err = place.ParseRequirements(f.require); err != nil {
		return req, "", cli.FlagError("--require", err)
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

// warm parses the arguments NAME [PAYLOAD] for a warm task.
func (f *taskFlags) warm(req *machinesapi.RunTask, args []string) (payload string, err error) {
	if len(args) < 1 || len(args) > 2 || f.payload != "" || len(f.env) > 0 || f.size != (place.Size{}) {
		return "", bourse.Errorf(bourse.CodeInvalid, "use NAME and at most one PAYLOAD; --payload, --env and the size flags require --image")
	}
	req.Task = args[0]
	if len(args) == 2 {
		payload = args[1]
	}
	return payload, bourse.ValidateTaskName(req.Task)
}

// cold parses the arguments [COMMAND...] for a cold task.
func (f *taskFlags) cold(req *machinesapi.RunTask, args []string) (err error) {
	init := bourse.Init{Cmd: args}
	if f.image == bourse.ImageHost {
		place.LocalProgram(&init)
	}
	req.Image, req.Command = f.image, init.Cmd
	if req.Env, err = cli.ParsePairs(f.env); err != nil {
		return cli.FlagError("--env", err)
	}
	req.Guest, err = f.size.Guest()
	return err
}

// readPayload sets the request's payload. A JSON argument is sent as JSON, and anything
// else as bytes.
func readPayload(s *cli.Shell, req *machinesapi.RunTask, word string) error {
	payload := []byte(word)
	if word == "-" {
		var err error
		if payload, err = io.ReadAll(io.LimitReader(s.In, bourse.MaxPayload+1)); err != nil {
			return bourse.Errorf(bourse.CodeInvalid, "read the payload: %w", err)
		}
	}
	if len(payload) > bourse.MaxPayload {
		return bourse.Errorf(bourse.CodeInvalid, "the payload exceeds %d bytes", bourse.MaxPayload)
	}
	if word != "-" && json.Valid(payload) && payload[0] != '"' {
		req.Payload = payload
	} else {
		req.PayloadBase64 = payload
	}
	return nil
}

// explain prints the refusals of a task that did not run, and returns err with hints. task
// is the name of the warm task, or "" for a cold one.
func explain(s *cli.Shell, err error, f *taskFlags, task string) error {
	reply, replied := errors.AsType[*machinesapi.ReplyError](err)
	switch bourse.CodeOf(err) {
	case bourse.CodeInsufficient:
		if replied {
			if err := place.PrintRefusals(s, reply.Refusals); err != nil {
				return err
			}
		}
		if task != "" {
			return cli.Hint(err, "bourse machine run -a "+f.app+" --task "+task+" IMAGE")
		}
	case bourse.CodeConflict:
		return cli.Hint(err, "another --order-id, or none")
	case bourse.CodeCanceled:
		if !replied && f.order != "" {
			return cli.Interrupted("interrupted; the same command with --order-id " + f.order + " returns the task's result")
		}
	case bourse.CodeTimeout:
		if replied && reply.OrderID != "" {
			return cli.Hint(err, "the same command with --order-id "+string(reply.OrderID)+", which returns the task's result")
		}
	default:
	}
	return err
}

// printReply prints the answer unchanged. On a terminal, it adds a newline if the answer
// does not end with one.
func printReply(s *cli.Shell, t *machinesapi.TaskReply) error {
	if s.JSON {
		if err := s.PrintJSON(t); err != nil {
			return err
		}
	} else if _, err := s.Out.Write(asLines(s, t.Bytes())); err != nil {
		return err
	}
	return exitOf(s, t)
}

func asLines(s *cli.Shell, answer []byte) []byte {
	if s.Out.TTY && len(answer) > 0 && answer[len(answer)-1] != '\n' {
		return append(answer, '\n')
	}
	return answer
}

// exitOf returns the task's exit status as an error.
func exitOf(s *cli.Shell, t *machinesapi.TaskReply) error {
	switch {
	case t.OK:
		return nil
	case !s.JSON:
		s.Note("task " + string(t.ID) + " on worker " + string(t.Worker) + ": " + t.Error)
	}
	switch {
	case t.End == bourse.TaskTimeout:
		return cli.ExitStatus(bourse.CodeTimeout.ExitStatus())
	case t.ExitCode > 0:
		return cli.ExitStatus(t.ExitCode)
	}
	return cli.ExitStatus(bourse.CodeInternal.ExitStatus())
}
