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
	errNobody  = errors.New("nobody waits for it any more")
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

// coded adds a code to an error of a pull or of a registry: what a repetition
// cannot help is not found, invalid or insufficient, the rest is unavailable.
func coded(err error, image string) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	code, why := judge(err)
	return bourse.Errorf(code, "image %s: %s: %w", image, why, err)
}

// judge returns the code and the message of an error for the caller.
func judge(err error) (bourse.Code, string) {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return judgeStatus(status.StatusCode)
	}
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return judgeStatus(http.StatusUnauthorized)
	case diskFull(err):
		return bourse.CodeInsufficient, "the worker's disk is full"
	case errors.Is(err, errStalled):
		return bourse.CodeUnavailable, "the registry hangs"
	case errors.Is(err, errShort):
		return bourse.CodeInvalid, "the registry does not have what the manifest names"
	case errors.Is(err, context.DeadlineExceeded):
		return bourse.CodeUnavailable, "no answer in time"
	case errors.Is(err, context.Canceled):
		return bourse.CodeUnavailable, "stopped"
	case unreachable(err):
		return bourse.CodeUnavailable, "not reached"
	case errdefs.IsNotFound(err):
		if _, ok := errors.AsType[*registryError](err); !ok {
			return bourse.CodeUnavailable, "containerd has lost a part of it"
		}
		return bourse.CodeNotFound, "there is no such image"
	case errdefs.IsFailedPrecondition(err), errdefs.IsInvalidArgument(err), errdefs.IsOutOfRange(err):
		return bourse.CodeInvalid, "the image is not what its manifest says"
	}
	if _, ok := errors.AsType[*layerError](err); ok {
		return bourse.CodeInvalid, "a layer cannot be unpacked"
	}
	return bourse.CodeUnavailable, "not pulled"
}

func judgeStatus(status int) (bourse.Code, string) {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		// Registries do not say which, so as not to reveal names.
		return bourse.CodeNotFound, "there is no such image, or this organisation has no credentials for it on the worker"
	case status == http.StatusNotFound:
		return bourse.CodeNotFound, "there is no such image"
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
		return bourse.CodeUnavailable, "the registry fails"
	}
	return bourse.CodeInvalid, "the registry refuses"
}

// unreachable reports whether containerd or a registry could not be talked to. A
// stream to a containerd that exits ends with io.EOF.
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
