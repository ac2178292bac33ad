package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

// Exec implements driver.Driver. When ctx is done, it returns the output so far together with ctx's error. It does not
// wait for a Stdin that blocks in Read, but does wait for a Stdout that blocks in Write.
//
// A command with a terminal leads its own session. When ctx is done, the command receives SIGHUP and is killed soon
// after. When the command exits, all other processes in the session are killed. The end of Stdin has the same effect as
// typing ^D.
func (d *Driver) Exec(ctx context.Context, id driver.TaskID, exec driver.Exec) (driver.ExecResult, error) {
	var result driver.ExecResult
	if err := checkExec(exec); err != nil {
		return result, err
	}
	if _, err := d.current(); err != nil {
		return result, err
	}
	if err := ctx.Err(); err != nil {
		return result, err
	}
	conn, err := companion.Dial(ctx, d.layout.run())
	if err != nil {
		return result, errLinkEnded(err)
	}
	defer conn.Close()
	// Closing the connection makes the supervisor kill the command.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	stopToo := context.AfterFunc(d.ctx, func() { _ = conn.Close() })
	defer stopToo()

	req := &request{Op: opExec, Task: id, Command: bytesOf(exec.Command)}
	if exec.Terminal != nil {
		req.Terminal, req.Term = true, exec.Terminal.Term
	}
	files, err := open(exec)
	if err != nil {
		return result, bourse.Errorf(bourse.CodeUnavailable, "exec: %w", err)
	}
	answer, err := askExec(conn, req, files)
	result.Stdout, result.Stderr = files.Finish()
	switch {
	case ctx.Err() != nil:
		return result, ctx.Err()
	case err != nil:
		return result, errLinkEnded(err)
	case answer.Error != nil:
		return result, answer.Error.Err()
	case answer.Exit == nil:
		return result, bourse.Errorf(bourse.CodeUnavailable, "the supervisor did not return an exit status")
	}
	result.Exit = *answer.Exit
	return result, nil
}

func checkExec(exec driver.Exec) error {
	switch {
	case len(exec.Command) == 0 || exec.Command[0] == "":
		return bourse.Errorf(bourse.CodeInvalid, "no command")
	case exec.Terminal != nil && exec.Stdout == nil:
		return bourse.Errorf(bourse.CodeInvalid, "a terminal requires stdout")
	}
	return nil
}

// askExec sends the request and the command's files, and waits for the answer, which is sent when the command has
// ended.
func askExec(conn *net.UnixConn, req *request, files Files) (*reply, error) {
	theirs := files.CommandFiles()
	err := sendWithFiles(conn, req, theirs[:])
	if err = errors.Join(err, files.Sent()); err != nil {
		return nil, err
	}
	r := new(reply)
	return r, companion.ReadFrame(bufio.NewReader(conn), r)
}

// sendWithFiles writes a frame and sends the files' descriptors along with its first bytes.
func sendWithFiles(conn *net.UnixConn, req *request, files []*os.File) error {
	var b bytes.Buffer
	if err := companion.WriteFrame(&b, req); err != nil {
		return err
	}
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
		// Make the files blocking, as commands expect.
		if err := unix.SetNonblock(fds[i], false); err != nil {
			return err
		}
	}
	n, _, err := conn.WriteMsgUnix(b.Bytes()[:4], unix.UnixRights(fds...), nil)
	if err != nil {
		return err
	}
	_, err = conn.Write(b.Bytes()[n:])
	return err
}
