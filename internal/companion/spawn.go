package companion

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/tuning"
)

// startTimeout is how long Spawn waits for a companion to report that it listens.
const startTimeout = 10 * time.Second

// Spawn starts a companion in its own session, so that a signal that terminates this process does not terminate the
// companion. It waits until the companion reports through Readiness that it listens. log is the path of the file to
// which the companion's stdout and stderr are appended. If the command is missing or not executable, Spawn returns
// CodeInvalid. If the companion starts but does not report success, Spawn returns both its process and the error. The
// caller must wait for the process or release it.
func Spawn(ctx context.Context, command []string, log string) (*os.Process, error) {
	if len(command) == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	path, err := exec.LookPath(command[0])
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "command %s: %w", bourse.Quoted(command[0]), err)
	} else if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if info, err := out.Stat(); err == nil && info.Size() > 1<<20 {
		_ = out.Truncate(0) // keeps the file small, because it is not rotated
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var p *os.Process
	tuning.ForkUnprotected(func() {
		p, err = os.StartProcess(path, command, &os.ProcAttr{
			Dir: "/", Env: append(os.Environ(), fmt.Sprintf("%s=%d", readyVariable, readyDescriptor)),
			Files: []*os.File{null, out, out, w}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
	})
	_ = w.Close()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return p, awaitReady(ctx, r)
}

// awaitReady reads the companion's report about its start.
func awaitReady(ctx context.Context, r *os.File) error {
	deadline, ok := ctx.Deadline()
	if most := time.Now().Add(startTimeout); !ok || deadline.After(most) {
		deadline = most
	}
	if err := r.SetReadDeadline(deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var b [4096]byte
	n, err := r.Read(b[:])
	switch text := string(b[:n]); {
	case text == "ok":
		return nil
	case n > 0:
		return errors.New(strings.TrimSpace(text))
	default:
		return fmt.Errorf("the companion did not report whether it started: %w", err)
	}
}
