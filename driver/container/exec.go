package container

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/typeurl/v2"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/driver/vm"
)

// Exec implements driver.Driver. When ctx ends, it kills the processes in the command's session,
// and returns the output so far together with ctx's error. It does not kill processes that have
// left the session. If the command ends normally, processes that it has left running in the
// container are not killed either. It does not wait for a Stdin that blocks in Read, but does wait
// for a Stdout that blocks in Write.
func (d *Driver) Exec(ctx context.Context, id driver.TaskID, exec driver.Exec) (driver.ExecResult, error) {
	if err := checkExec(exec); err != nil {
		return driver.ExecResult{}, err
	}
	t, err := d.find(ctx, id)
	if err != nil {
		return driver.ExecResult{}, err
	}
	if d.tasks.status(t).Exit != nil {
		return driver.ExecResult{}, errEnded(id)
	}
	if !d.beginCall() { // Close waits until the command has been killed
		return driver.ExecResult{}, errUnavailable(errClosed)
	}
	defer d.work.Done()
	inner, c, release, err := d.connect(ctx)
	if err != nil {
		return driver.ExecResult{}, err
	}
	defer release()
	x := &execution{Driver: d, c: c, task: t, exec: exec, id: execPrefix + strings.ToLower(rand.Text())}
	result, err := x.run(inner)
	if err != nil {
		if frozen, unknown := isFrozen(inner, c, t.container); unknown == nil && frozen {
			return result, errFrozen(id)
		}
	}
	if isEnded(err) {
		err = errEnded(id)
	}
	return result, withCode(ctx, err)
}

func checkExec(exec driver.Exec) error {
	if len(exec.Command) == 0 || exec.Command[0] == "" {
		return bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	if exec.Terminal != nil && exec.Stdout == nil {
		return bourse.Errorf(bourse.CodeInvalid, "a terminal requires stdout")
	}
	return checkSize(exec.Command)
}

// execPrefix is the prefix of the id of every exec and of its directory's name.
const execPrefix = "exec-"

// execution is an Exec in progress.
type execution struct {
	*Driver
	c    *containerd.Client
	task *task
	exec driver.Exec
	id   string
	args []string // of an agent in the container of a virtual machine, instead of exec.Command
	out  *output
	err  *output
	eof  chan struct{} // closed when the command's stdin has ended
	done chan struct{} // closed when the command has ended
	io   cio.IO
}

func (x *execution) run(ctx context.Context) (driver.ExecResult, error) {
	spec, err := x.spec(ctx)
	if x.task.vm {
		defer vm.RemoveExec(x.layout.machine(x.task.id), x.id)
	}
	if err != nil {
		return driver.ExecResult{}, err
	}
	x.eof, x.done = make(chan struct{}), make(chan struct{})
	dir := filepath.Join(x.layout.task(x.task.id), x.id)
	if x.io, err = x.open(dir); err != nil {
		return driver.ExecResult{}, err
	}
	end := sync.OnceFunc(func() { close(x.done) })
	defer end()
	defer x.closeIO()
	pid, err := x.start(ctx, spec)
	defer x.clear(ctx, dir)
	if err != nil {
		return driver.ExecResult{}, startError(ctx, err)
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { x.closeStdin(ctx) })
	helpers.Go(func() { x.resize(ctx) })
	exit, err := x.await(ctx, pid)
	end()
	helpers.Wait()
	x.drain(ctx)
	if x.task.vm && err == nil {
		err = vm.ExecError(x.layout.machine(x.task.id), x.id)
	}
	return driver.ExecResult{Exit: exit, Stdout: x.out.close(), Stderr: x.err.close()}, err
}

// spec returns the container's process specification, changed to run the exec's command.
func (x *execution) spec(ctx context.Context) (*specs.Process, error) {
	record, err := x.c.ContainerService().Get(ctx, x.task.container)
	if err != nil {
		return nil, err
	}
	var s specs.Spec
	if err := json.Unmarshal(record.Spec.GetValue(), &s); err != nil {
		return nil, err
	}
	p := s.Process
	p.Args, p.Terminal, p.ConsoleSize = x.exec.Command, x.exec.Terminal != nil, nil
	if term := x.exec.Terminal; term != nil {
		p.Env = append(slices.DeleteFunc(p.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }), "TERM="+cmp.Or(term.Term, defaultTerm))
		p.ConsoleSize = &specs.Box{Height: uint(term.Size.Rows), Width: uint(term.Size.Cols)}
	}
	if x.task.vm {
		p.OOMScoreAdj = new(1000) // if there are too many execs, the kernel kills one of them, and not the machine
		if p.Args = x.args; p.Args == nil {
			p.Args, err = x.giveProgram()
		}
	}
	return p, err
}

const defaultTerm = "xterm"

// open creates the FIFOs of the command and starts copying.
func (x *execution) open(dir string) (cio.IO, error) {
	x.out, x.err = newOutput(x.exec.Stdout, x.exec.Limit), newOutput(x.exec.Stderr, x.exec.Limit)
	if x.exec.Stdout != nil && x.exec.Stderr == nil {
		x.err.to = io.Discard // no output is returned if either is streamed
	}
	var ready chan struct{}
	if x.task.vm && x.exec.Terminal != nil { // until the agent has configured the terminal, it would change the input
		ready = make(chan struct{})
		x.out.ready = func() { close(ready) }
	}
	var stdin io.Reader // must be an untyped nil if there is no stdin
	if x.exec.Stdin != nil {
		stdin = &input{
			Reader: x.exec.Stdin, terminal: x.exec.Terminal != nil,
			end: sync.OnceFunc(func() { close(x.eof) }), over: x.done, ready: ready,
		}
	}
	options := []cio.Opt{cio.WithFIFODir(dir), cio.WithStreams(stdin, x.out, x.err)}
	if x.exec.Terminal != nil {
		options = append(options, cio.WithTerminal)
	}
	return cio.NewCreator(options...)(x.id)
}

// start starts the command and returns its process id. It continues even if ctx is canceled,
// because a half-started command could not be killed.
func (x *execution) start(ctx context.Context, p *specs.Process) (int, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startGrace)
	defer cancel()
	encoded, err := typeurl.MarshalAnyToProto(p)
	if err != nil {
		return 0, err
	}
	cfg := x.io.Config()
	_, err = x.c.TaskService().Exec(ctx, &tasks.ExecProcessRequest{
		ContainerID: x.task.container, ExecID: x.id, Spec: encoded,
		Stdin: cfg.Stdin, Stdout: cfg.Stdout, Stderr: cfg.Stderr, Terminal: cfg.Terminal,
	})
	if err != nil {
		return 0, err
	}
	r, err := x.c.TaskService().Start(ctx, &tasks.StartRequest{ContainerID: x.task.container, ExecID: x.id})
	if err != nil {
		return 0, err
	}
	return int(r.Pid), nil
}

// await waits for the command to end, and kills it when ctx ends.
func (x *execution) await(ctx context.Context, pid int) (bourse.Exit, error) {
	waiting := &tasks.WaitRequest{ContainerID: x.task.container, ExecID: x.id}
	r, err := x.c.TaskService().Wait(ctx, waiting)
	if err == nil {
		return exitFrom(r.ExitStatus, r.ExitedAt), nil
	}
	cause := ctx.Err()
	if cause == nil {
		return bourse.Exit{}, err
	}
	killing, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	x.kill(killing, pid)
	if r, err = x.c.TaskService().Wait(killing, waiting); err != nil {
		return bourse.Exit{}, cause
	}
	return exitFrom(r.ExitStatus, r.ExitedAt), cause
}

// kill kills the command and the processes in its session. It also asks the shim to do so,
// because with some runtimes, the container's processes are not processes of this host.
func (x *execution) kill(ctx context.Context, pid int) {
	_, _ = x.c.TaskService().Kill(ctx, &tasks.KillRequest{
		ContainerID: x.task.container, ExecID: x.id, Signal: uint32(unix.SIGKILL),
	})
	x.groups.KillSession(cgroup.PathOf(x.layout.mark(), x.task.container), pid, killGrace)
}

// closeStdin tells the shim to close the command's input once the exec's Stdin has ended. The
// shim otherwise holds the input open.
func (x *execution) closeStdin(ctx context.Context) {
	select {
	case <-x.eof:
		_, _ = x.c.TaskService().CloseIO(ctx, &tasks.CloseIORequest{ContainerID: x.task.container, ExecID: x.id, Stdin: true})
	case <-x.done:
	}
}

// resize forwards new sizes to the command's terminal.
func (x *execution) resize(ctx context.Context) {
	if x.exec.Terminal == nil {
		return
	}
	for {
		select {
		case size, ok := <-x.exec.Terminal.Resize:
			if !ok {
				return
			}
			_, _ = x.c.TaskService().ResizePty(ctx, &tasks.ResizePtyRequest{
				ContainerID: x.task.container, ExecID: x.id, Width: uint32(size.Cols), Height: uint32(size.Rows),
			})
		case <-x.done:
			return
		}
	}
}

// drain waits until the reader has received the rest of an ended command's output, however slow
// the reader is. It does not wait for output of the command's children.
func (x *execution) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() { // this goroutine ends when closeIO has closed the FIFOs
		x.io.Wait()
		close(done)
	}()
	taken := func() int64 { return x.out.taken.Load() + x.err.taken.Load() }
	for first := taken(); ; {
		before := taken()
		timer := time.NewTimer(drainGrace)
		select {
		case <-done:
			timer.Stop()
			return
		case <-timer.C:
		}
		slow := x.out.writing.Load()+x.err.writing.Load() > 0
		if quiet := taken() == before && !slow; quiet || taken() > first+maxPipe || ctx.Err() != nil {
			return
		}
	}
}

// maxPipe exceeds the capacity of the pipes between a command and this process.
const maxPipe = 1 << 20

func (x *execution) closeIO() {
	x.io.Cancel()
	_ = x.io.Close()
}

// clear removes the FIFOs and the shim's data about the command. If the command is running, or may
// have been started, clear kills it.
func (x *execution) clear(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	service, container := x.c.TaskService(), x.task.container
	_, err := service.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: container, ExecID: x.id})
	if err != nil && !isNotFound(err) {
		if r, err := service.Get(ctx, &tasks.GetRequest{ContainerID: container, ExecID: x.id}); err == nil {
			x.kill(ctx, int(r.Process.Pid))
			_, _ = service.Wait(ctx, &tasks.WaitRequest{ContainerID: container, ExecID: x.id})
		}
		_, err = service.DeleteProcess(ctx, &tasks.DeleteProcessRequest{ContainerID: container, ExecID: x.id})
	}
	if err == nil || isNotFound(err) {
		_ = os.RemoveAll(dir)
		return // the next Recover finds the directory
	}
	x.cfg.Log.Warn("exec may still be running", "machine", x.task.id.Machine, "boot", x.task.id.Boot, "err", err)
}
