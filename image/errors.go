package image

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
)

// Reasons of our own.
var (
	errStalled = errors.New("the registry stopped sending")
	errShort   = errors.New("the registry has fewer bytes than the manifest says")
	errClosed  = errors.New("the worker's daemon stops")
	errNobody  = errors.New("no one waits for it any more")
)

// layerError is a layer that containerd could not unpack.
type layerError struct{ err error }

func (e *layerError) Error() string { return e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// registryError is an error of a registry, to distinguish its "not found"
// from containerd's.
type registryError struct{ err error }

func (e *registryError) Error() string { return e.err.Error() }
func (e *registryError) Unwrap() error { return e.err }

// coded adds a code to an error of a pull or of a registry, and a message for
// the caller: what a repetition cannot help is not found, invalid or
// insufficient, the rest is unavailable. The cause is for the log.
func coded(err error, image string) error {
	if err == nil {
		return nil
	}
	var code bourse.Code
	var why string
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		code, why = e.Code, e.Message
	} else {
		code, why = judge(err, bourse.ParseImageRef(image).Registry)
	}
	about := "image " + image + ": "
	return &bourse.Error{Code: code, Message: about + strings.TrimPrefix(why, about), Err: err}
}

// judge returns the code and the message of an error for the caller.
func judge(err error, registry string) (bourse.Code, string) {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return judgeStatus(&status, registry)
	}
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return bourse.CodeNotFound, noSuchOrDenied
	case diskFull(err):
		return bourse.CodeInsufficient, "the worker's disk is full"
	case errors.Is(err, errStalled):
		return bourse.CodeUnavailable, registry + " does not answer"
	case errors.Is(err, errShort):
		return bourse.CodeInvalid, registry + " does not have what the manifest names"
	case errors.Is(err, errClosed), errors.Is(err, errNobody), errors.Is(err, context.Canceled):
		return bourse.CodeUnavailable, "the pull was stopped"
	}
	_, theirs := errors.AsType[*registryError](err)
	if theirs {
		if why := unreached(err, registry); why != "" {
			return bourse.CodeUnavailable, why
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return bourse.CodeUnavailable, registry + " did not answer in time"
	case unreachable(err):
		return bourse.CodeUnavailable, "containerd is away"
	case errdefs.IsNotFound(err) && !theirs:
		return bourse.CodeUnavailable, "containerd has lost a part of it"
	case errdefs.IsNotFound(err):
		return bourse.CodeNotFound, noSuch
	case errdefs.IsFailedPrecondition(err), errdefs.IsInvalidArgument(err), errdefs.IsOutOfRange(err):
		return bourse.CodeInvalid, "the image is not what its manifest says"
	}
	if _, ok := errors.AsType[*layerError](err); ok {
		return bourse.CodeInvalid, "a layer cannot be unpacked"
	}
	return bourse.CodeUnavailable, "not pulled: the worker's log has the cause"
}

// What is said of an image that a registry does not show. Registries do not say
// which, so as not to reveal names.
const (
	noSuch         = "there is no such image"
	noSuchOrDenied = noSuch + ", or this organisation has no credentials for it on the worker (--registry-auth)"
)

// judgeStatus judges what a registry has answered.
func judgeStatus(e *remoteerrors.ErrUnexpectedStatus, registry string) (bourse.Code, string) {
	answered := registry + " answered " + statusText(e)
	switch status := e.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return bourse.CodeNotFound, noSuchOrDenied
	case status == http.StatusNotFound:
		return bourse.CodeNotFound, noSuch
	case status == http.StatusTooManyRequests:
		return bourse.CodeUnavailable, answered + "; it may allow more with credentials (--registry-auth)"
	case status == http.StatusRequestTimeout || status >= 500:
		return bourse.CodeUnavailable, answered
	}
	return bourse.CodeInvalid, answered
}

// unreachable reports whether containerd could not be talked to. A stream to one that
// exits ends with io.EOF.
func unreachable(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errdefs.IsUnavailable(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errdefs.IsCanceled(err)
}

// diskFull looks at the text: containerd passes the cause on as nothing else.
func diskFull(err error) bool {
	text := err.Error()
	return strings.Contains(text, syscall.ENOSPC.Error()) || strings.Contains(text, syscall.EDQUOT.Error())
}

// final reports whether repeating a pull cannot help; then nothing of it is kept.
func final(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled:
		return false
	default:
		return true
	}
}
