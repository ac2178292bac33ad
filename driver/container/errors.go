package container

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

var errClosed = errors.New("the driver is closed")

func errNoTask(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeNotFound, "no task %s/%d", id.Machine, id.Boot)
}

func errEnded(id driver.TaskID) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "task %s/%d has ended", id.Machine, id.Boot)
}

func errUnavailable(cause error) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "containerd cannot be reached", Err: cause}
}

// native returns containerd's error for one of its API, and leaves others be.
func native(err error) error {
	if _, ok := status.FromError(err); !ok || err == nil {
		return err
	}
	return errgrpc.ToNative(err)
}

// isNotFound reports whether containerd does not have what was asked for.
func isNotFound(err error) bool { return err != nil && errdefs.IsNotFound(native(err)) }

// coded returns an error of a call of containerd with the code for the caller.
// The end of the caller's own context is returned as it is. containerd is told
// the caller's deadline, and on a busy host notices first that it has passed.
func coded(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	if own := ctx.Err(); own != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errClosed) {
			return errUnavailable(cause)
		}
		return own
	}
	err = native(err)
	if deadline, ok := ctx.Deadline(); ok && errdefs.IsDeadlineExceeded(err) && time.Until(deadline) < time.Second {
		return context.DeadlineExceeded
	}
	switch {
	case errdefs.IsUnavailable(err), errdefs.IsCanceled(err), errdefs.IsDeadlineExceeded(err), isTransport(err):
		return errUnavailable(err)
	case errdefs.IsResourceExhausted(err):
		return bourse.Errorf(bourse.CodeInvalid, "command and environment are too long: %w", err)
	}
	return err
}

// isTransport reports whether a connection ended under a call.
func isTransport(err error) bool {
	text := err.Error()
	return isShimGone(err) || strings.Contains(text, "transport is closing") || strings.Contains(text, "error reading from server")
}

// isShimGone reports whether containerd's connection to a shim ended under a
// call. It passes that on as text.
func isShimGone(err error) bool { return err != nil && strings.Contains(err.Error(), "ttrpc: closed") }

// refusals are phrases of a runtime's error that say that what was ordered
// cannot be run, by anybody. A runtime has no codes: its words are all there
// is.
var refusals = []string{
	"executable file not found", // no such command
	"no such file or directory",
	"permission denied", // not executable
	"exec format error",
	"argument list too long",
	"is a directory",
	"not a directory",
	"chdir to cwd",
	"invalid environment variable",
	"mkdir",                // the target of a mount
	"error mounting",       // likewise
	"binary not installed", // of the runtime
	"invalid runtime name",
	"OOM-killed", // before it could begin
}

// startError makes of what containerd says when a task cannot be created or
// started what the caller should read: what the runtime said, which is internal
// unless the order is to blame. hidden are paths of the host that it may name.
func startError(ctx context.Context, err error, hidden ...string) error {
	if _, ok := errors.AsType[*bourse.Error](err); ok || ctx.Err() != nil {
		return coded(ctx, err)
	}
	err = native(err)
	text := condense(hide(err.Error(), hidden))
	if strings.Contains(text, "no space left on device") {
		return &bourse.Error{Code: bourse.CodeInsufficient, Message: cannotStart + "no space left on device", Err: err}
	}
	for _, phrase := range refusals {
		if strings.Contains(text, phrase) {
			return &bourse.Error{Code: bourse.CodeInvalid, Message: cannotStart + text, Err: err}
		}
	}
	if err := coded(ctx, err); bourse.CodeOf(err) != bourse.CodeInternal {
		return err
	}
	return &bourse.Error{Code: bourse.CodeInternal, Message: cannotStart + text} // without a cause: this may be told
}

const cannotStart = "the container cannot be started: "

// rootfs is where runtimes have a container's root on the host: what follows is
// its path within.
var rootfs = regexp.MustCompile(`[^\s"'=:,]*/io\.containerd\.[^\s"'=:,]*/rootfs`)

// hide takes from a runtime's error the paths of the host that begin like
// these.
func hide(text string, hidden []string) string {
	text = rootfs.ReplaceAllLiteralString(text, "")
	for _, path := range hidden {
		if path == "" {
			continue
		}
		var out strings.Builder
		for {
			before, rest, found := strings.Cut(text, path)
			out.WriteString(before)
			if !found {
				break
			}
			end := strings.IndexFunc(rest, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune("\"'`:,;", r) })
			if end < 0 {
				end = len(rest)
			}
			out.WriteString("(of the host)")
			text = rest[end:]
		}
		text = out.String()
	}
	return text
}

// layers are what each program adds on the way of an error from the runtime
// to us, from the outermost.
var layers = []string{
	"failed to create task for container: ", "failed to create shim task: ", "failed to create shim: ",
	"failed to start shim: ", "OCI runtime create failed: ", "OCI runtime start failed: ", "OCI runtime exec failed: ",
	"failed to start exec: ", "runc create failed: ", "runc start failed: ", "runc run failed: ", "exec failed: ",
	"unable to start container process: ", "cannot start a stopped process: ", "error during container init: ",
}

// condense takes from a runtime's error what it is about.
func condense(text string) string {
	const most = 512 // a message is read by people
	text = strings.TrimSuffix(strings.TrimSpace(text), ": unknown")
	for _, layer := range layers {
		if _, rest, ok := strings.Cut(text, layer); ok && rest != "" {
			text = rest
		}
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
