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
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "cannot reach containerd", Err: cause}
}

// toErrdefs converts an error from containerd's API to the corresponding error of containerd's errdefs package. It
// returns other errors unchanged.
func toErrdefs(err error) error {
	if _, ok := status.FromError(err); !ok || err == nil {
		return err
	}
	return errgrpc.ToNative(err)
}

// isNotFound reports whether err means that the object does not exist in containerd.
func isNotFound(err error) bool { return err != nil && errdefs.IsNotFound(toErrdefs(err)) }

// withCode adds a code to an error from a call to containerd. If ctx is done, it returns ctx's error instead, or
// CodeUnavailable if the driver was closed. If ctx is not done yet, but containerd reports that ctx's deadline has
// passed, withCode returns context.DeadlineExceeded.
func withCode(ctx context.Context, err error) error {
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
	if isLate(ctx, err) {
		return context.DeadlineExceeded
	}
	err = toErrdefs(err)
	switch {
	case errdefs.IsUnavailable(err), errdefs.IsCanceled(err), errdefs.IsDeadlineExceeded(err), isTransport(err):
		return errUnavailable(err)
	case errdefs.IsResourceExhausted(err):
		return bourse.Errorf(bourse.CodeInvalid, "command and environment are too long: %w", err)
	}
	return err
}

// isLate reports whether err means that ctx's deadline has passed. On a busy host, containerd or a shim may report this
// slightly before ctx is done. A shim reports it only as text.
func isLate(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) >= time.Second || err == nil {
		return false
	}
	err = toErrdefs(err)
	return errdefs.IsDeadlineExceeded(err) || strings.Contains(err.Error(), context.DeadlineExceeded.Error())
}

// isTransport reports whether err means that a connection broke during a call.
func isTransport(err error) bool {
	text := err.Error()
	return isShimGone(err) || strings.Contains(text, "transport is closing") || strings.Contains(text, "error reading from server")
}

// isShimGone reports whether err means that containerd's connection to a shim broke during a call.
// containerd reports this only as text.
func isShimGone(err error) bool { return err != nil && strings.Contains(err.Error(), "ttrpc: closed") }

// refusals lists phrases in runtimes' errors that indicate that the order caused the error. Runtimes report errors only
// as text, without codes.
var refusals = []string{
	"executable file not found", // command not found
	"no such file or directory",
	"permission denied", // not executable
	"exec format error",
	"argument list too long",
	"is a directory",
	"not a directory",
	"chdir to cwd",
	"invalid environment variable",
	"mkdir",                // the target of a mount cannot be created
	"error mounting",       // a mount failed
	"binary not installed", // the runtime is not installed
	"invalid runtime name",
	"OOM-killed", // out of memory before the program started
}

// startError converts an error from creating or starting a task in containerd. The returned error contains the
// runtime's message. Its code is invalid if the order caused the failure, insufficient_capacity if the disk is full,
// unavailable if containerd is unreachable, and internal otherwise. hidden lists paths on the host that the message
// must not reveal.
func startError(ctx context.Context, err error, hidden ...string) error {
	if _, ok := errors.AsType[*bourse.Error](err); ok || ctx.Err() != nil {
		return withCode(ctx, err)
	}
	err = toErrdefs(err)
	text := shortenRuntimeError(removePaths(err.Error(), hidden))
	if strings.Contains(text, "no space left on device") {
		return &bourse.Error{Code: bourse.CodeInsufficient, Message: cannotStart + "no space left on device", Err: err}
	}
	for _, phrase := range refusals {
		if strings.Contains(text, phrase) {
			return &bourse.Error{Code: bourse.CodeInvalid, Message: cannotStart + text, Err: err}
		}
	}
	if err := withCode(ctx, err); bourse.CodeOf(err) != bourse.CodeInternal {
		return err
	}
	return &bourse.Error{Code: bourse.CodeInternal, Message: cannotStart + text} // do not wrap the original error, because users may see this one
}

const cannotStart = "the container cannot be started: "

// rootfs matches the host path of a container's root directory. The rest of the path, after the match, is a path in the
// container.
var rootfs = regexp.MustCompile(`[^\s"'=:,]*/io\.containerd\.[^\s"'=:,]*/rootfs`)

// removePaths removes host paths from a runtime's error: the root directories of containers, and all paths
// that begin with a prefix in hidden.
func removePaths(text string, hidden []string) string {
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

// layers lists prefixes that containerd, the shim and runc add to an error, outermost first.
var layers = []string{
	"failed to create task for container: ", "failed to create shim task: ", "failed to create shim: ",
	"failed to start shim: ", "OCI runtime create failed: ", "OCI runtime start failed: ", "OCI runtime exec failed: ",
	"failed to start exec: ", "runc create failed: ", "runc start failed: ", "runc run failed: ", "exec failed: ",
	"unable to start container process: ", "cannot start a stopped process: ", "error during container init: ",
}

// shortenRuntimeError returns the relevant part of a runtime's error, without the prefixes in layers and
// without control characters.
func shortenRuntimeError(text string) string {
	const most = 512 // short enough for a person to read
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
