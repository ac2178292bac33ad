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

// Exec implements driver.Driver. When ctx is done, it kills the processes in the command's session,
// but not those that have left the session, and returns the output so far together with ctx's
// error. When the command exits on its own, processes that it has left in the background keep
// running. Exec does not wait for a Stdin that blocks in Read, but does wait for a Stdout that
// blocks in Write.
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

// execPrefix is the prefix of every exec's id, which is also the name of the exec's directory.
const execPrefix = "exec-"

// execution is an Exec call in progress.
type execution struct {
	*Driver
	c    *containerd.Client
	task *task
	exec driver.Exec
	id   string
	args []string // if not nil, the command line to run in a virtual machine's container, instead of exec.Command in the guest
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

// spec returns the process specification of the exec's command, derived from that of the
// container's main process.
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
		p.OOMScoreAdj = new(1000) // if execs use too much memory, the kernel kills one of them instead of the machine
		if p.Args = x.args; p.Args == nil {
			p.Args, err = x.writeProgram()
		}
	}
	return p, err
}

const defaultTerm = "xterm"

// open creates FIFOs for the command's stdin, stdout and stderr in dir, and starts copying data.
func (x *execution) open(dir string) (cio.IO, error) {
	x.out, x.err = newOutput(x.exec.Stdout, x.exec.Limit), newOutput(x.exec.Stderr, x.exec.Limit)
	if x.exec.Stdout != nil && x.exec.Stderr == nil {
		x.err.to = io.Discard // if stdout is streamed, stderr is not returned either
	}
	var ready chan struct{}
	if x.task.vm && x.exec.Terminal != nil { // a terminal that the agent has not configured yet would alter the input
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

// start starts the command and returns its process id. It continues even if ctx is done, because a
// command that is being started cannot be killed.
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

// await waits for the command to end, and kills it when ctx is done.
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

// kill kills the command and the processes in its session. It also asks the shim to kill the
// command, because with some runtimes, a container's processes are not visible on the host.
func (x *execution) kill(ctx context.Context, pid int) {
	_, _ = x.c.TaskService().Kill(ctx, &tasks.KillRequest{
		ContainerID: x.task.container, ExecID: x.id, Signal: uint32(unix.SIGKILL),
	})
	x.groups.KillSession(cgroup.PathOf(x.layout.mark(), x.task.container), pid, killGrace)
}

// closeStdin makes the shim close the command's stdin once the exec's Stdin has ended. Without this
// call, the shim would keep the command's stdin open.
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

// drain waits until the rest of an exited command's output has been received and forwarded, however
// slow the receiver is. It does not wait for the command's children to close the output.
func (x *execution) drain(ctx context.Context) {
	done := make(chan struct{})
	go func() { // exits once closeIO has closed the FIFOs
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

// maxPipe is an upper bound for the data in the pipes between a command and this process, in bytes.
const maxPipe = 1 << 20

func (x *execution) closeIO() {
	x.io.Cancel()
	_ = x.io.Close()
}

// clear removes the FIFOs and the shim's data about the command. If the command is still running,
// for example because start failed halfway, clear kills it first.
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
		return // if the directory was not removed, the next Recover tries again
	}
	x.cfg.Log.Warn("exec may still be running", "machine", x.task.id.Machine, "boot", x.task.id.Boot, "err", err)
}
