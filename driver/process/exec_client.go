package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// execLimit is how much of each output is kept when nothing else is asked.
const execLimit = 1 << 20

// Exec implements driver.Driver. When ctx ends, what the command wrote until
// then is given together with ctx's error. A Stdin that blocks in Read is not
// waited for.
func (d *Driver) Exec(ctx context.Context, id driver.TaskID, exec driver.Exec) (driver.ExecResult, error) {
	var result driver.ExecResult
	if len(exec.Command) == 0 || exec.Command[0] == "" {
		return result, bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	if _, err := d.current(); err != nil {
		return result, err
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	conn, err := dialSocket(ctx, d.layout.run())
	if err != nil {
		return result, errLinkEnded(err)
	}
	defer conn.Close()
	// The connection's end is what kills the command.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	stopToo := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	defer stopToo()

	files, err := newExecIO(exec)
	if err != nil {
		return result, err
	}
	answer, err := askExec(conn, &request{Op: opExec, Task: id, Command: bytesOf(exec.Command)}, files)
	result.Stdout, result.Stderr = files.finish()
	switch {
	case ctx.Err() != nil:
		return result, ctx.Err()
	case err != nil:
		return result, errLinkEnded(err)
	case answer.Error != nil:
		return result, answer.Error.err()
	case answer.Exit == nil:
		return result, bourse.Errorf(bourse.CodeUnavailable, "the supervisor gave no exit")
	}
	result.Exit = *answer.Exit
	return result, nil
}

// askExec sends the request with the command's files and waits for its end.
func askExec(conn *net.UnixConn, req *request, files *execIO) (*reply, error) {
	err := sendWithFiles(conn, req, files.theirs[:])
	for _, f := range files.theirs {
		err = errors.Join(err, f.Close()) // or the outputs would never end
	}
	if err != nil {
		return nil, err
	}
	r := new(reply)
	return r, readFrame(bufio.NewReader(conn), r)
}

// sendWithFiles writes one frame whose first byte carries the descriptors.
func sendWithFiles(conn *net.UnixConn, req *request, files []*os.File) error {
	var b bytes.Buffer
	if err := writeFrame(&b, req); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	n, _, err := conn.WriteMsgUnix(b.Bytes()[:4], unix.UnixRights(fds...), nil)
	if err != nil {
		return err
	}
	_, err = conn.Write(b.Bytes()[n:])
	return err
}

// execIO is a command's stdin, stdout and stderr: ours are copied, theirs are
// passed to the supervisor.
type execIO struct {
	ours   [2]*os.File // stdout and stderr
	theirs [3]*os.File
	out    [2]limited
	work   sync.WaitGroup
}

func newExecIO(exec driver.Exec) (*execIO, error) {
	e := &execIO{}
	var all []*os.File
	open := func(r, w *os.File, err error) (*os.File, *os.File, error) {
		all = append(all, r, w)
		return r, w, err
	}
	outR, outW, err1 := open(os.Pipe())
	errR, errW, err2 := open(os.Pipe())
	var inR, inW *os.File
	var err3 error
	if exec.Stdin == nil {
		inR, err3 = os.Open(os.DevNull)
		all = append(all, inR)
	} else {
		inR, inW, err3 = open(os.Pipe())
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		for _, f := range all {
			_ = f.Close() // nil ones say so and do nothing
		}
		return nil, bourse.Errorf(bourse.CodeUnavailable, "exec: %w", err)
	}
	e.ours, e.theirs = [2]*os.File{outR, errR}, [3]*os.File{inR, outW, errW}
	for i := range e.out {
		e.out[i].limit = exec.Limit
		if exec.Limit <= 0 {
			e.out[i].limit = execLimit
		}
		e.work.Go(func() { _, _ = io.Copy(&e.out[i], e.ours[i]) })
	}
	if inW != nil {
		go feed(inW, exec.Stdin)
	}
	return e, nil
}

// feed copies stdin until either side ends. Nobody can interrupt a Read that
// blocks, so nobody waits for it either.
func feed(w *os.File, r io.Reader) {
	_, _ = io.Copy(w, r) // the command sees the end of its input; its exit tells the rest
	_ = w.Close()
}

// finish gives the outputs. Processes that have escaped from the command's
// group may keep them open: then what came until now is all.
func (e *execIO) finish() (stdout, stderr []byte) {
	for _, f := range e.ours {
		_ = f.SetReadDeadline(time.Now().Add(drainGrace))
	}
	e.work.Wait()
	for _, f := range e.ours {
		_ = f.Close()
	}
	return e.out[0].b, e.out[1].b
}

// limited keeps the first bytes that are written to it and takes the rest, so
// that the writer is never held up.
type limited struct {
	b     []byte
	limit int
}

func (l *limited) Write(p []byte) (int, error) {
	l.b = append(l.b, p[:min(len(p), l.limit-len(l.b))]...)
	return len(p), nil
}
