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

// Errors of failed pulls.
var (
	errStalled   = errors.New("the registry stopped sending")
	errShort     = errors.New("the registry sent fewer bytes than the manifest specifies")
	errClosed    = errors.New("the worker's daemon is stopping")
	errNoWaiters = errors.New("no caller is waiting for the pull")
)

// layerError means that a layer cannot be unpacked because the layer itself is invalid.
type layerError struct{ err error }

func (e *layerError) Error() string { return e.err.Error() }
func (e *layerError) Unwrap() error { return e.err }

// registryError wraps an error from a registry, so that a "not found" error from a registry can be distinguished from
// containerd's.
type registryError struct{ err error }

func (e *registryError) Error() string { return e.err.Error() }
func (e *registryError) Unwrap() error { return e.err }

// withCode wraps an error from a pull or a registry, and adds a code and a message for the caller. The code is
// not_found, invalid or insufficient_capacity if the error is permanent, and unavailable otherwise. The original error
// is only meant for the log.
func withCode(err error, image string) error {
	if err == nil {
		return nil
	}
	var code bourse.Code
	var why string
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		code, why = e.Code, e.Message
	} else {
		code, why = classify(err, bourse.ParseImageRef(image).Registry)
	}
	about := "image " + image + ": "
	return &bourse.Error{Code: code, Message: about + strings.TrimPrefix(why, about), Err: err}
}

// classify returns the code and the message that the caller receives for an error.
func classify(err error, registry string) (bourse.Code, string) {
	if status, ok := errors.AsType[remoteerrors.ErrUnexpectedStatus](err); ok {
		return classifyStatus(&status, registry)
	}
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization):
		return bourse.CodeNotFound, noImageOrDeniedText
	case diskFull(err):
		return bourse.CodeInsufficient, "the worker's disk is full"
	case errors.Is(err, errStalled):
		return bourse.CodeUnavailable, registry + " does not answer"
	case errors.Is(err, errShort):
		return bourse.CodeInvalid, registry + " lacks a blob of the manifest"
	case errors.Is(err, errClosed), errors.Is(err, errNoWaiters), errors.Is(err, context.Canceled):
		return bourse.CodeUnavailable, "the pull was stopped"
	}
	_, theirs := errors.AsType[*registryError](err)
	if theirs {
		if why := unreachableText(err, registry); why != "" {
			return bourse.CodeUnavailable, why
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return bourse.CodeUnavailable, registry + " did not answer in time"
	case unreachable(err):
		return bourse.CodeUnavailable, "containerd is unavailable"
	case errdefs.IsNotFound(err) && !theirs:
		return bourse.CodeUnavailable, "containerd has lost part of the image"
	case errdefs.IsNotFound(err):
		return bourse.CodeNotFound, noImageText
	case errdefs.IsFailedPrecondition(err), errdefs.IsInvalidArgument(err), errdefs.IsOutOfRange(err):
		return bourse.CodeInvalid, "the image does not match its manifest"
	}
	if _, ok := errors.AsType[*layerError](err); ok {
		return bourse.CodeInvalid, "a layer cannot be unpacked"
	}
	return bourse.CodeUnavailable, "pull failed; see the worker's log for the cause"
}

// Messages for missing images. A registry that denies access to an image does not reveal whether the image exists, so
// the second message covers both cases.
const (
	noImageText         = "there is no such image"
	noImageOrDeniedText = noImageText + ", or this organization has no credentials for it on the worker (--registry-auth)"
)

// classifyStatus returns the code and the message for an HTTP error status from a registry.
func classifyStatus(e *remoteerrors.ErrUnexpectedStatus, registry string) (bourse.Code, string) {
	answered := registry + " answered " + statusText(e)
	switch status := e.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return bourse.CodeNotFound, noImageOrDeniedText
	case status == http.StatusNotFound:
		return bourse.CodeNotFound, noImageText
	case status == http.StatusTooManyRequests:
		return bourse.CodeUnavailable, answered + "; its limit may be higher with credentials (--registry-auth)"
	case status == http.StatusRequestTimeout || status >= 500:
		return bourse.CodeUnavailable, answered
	}
	return bourse.CodeInvalid, answered
}

// unreachable reports whether err means that containerd could not be reached. If containerd exits, its streams end
// with io.EOF.
func unreachable(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errdefs.IsUnavailable(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errdefs.IsCanceled(err)
}

// diskFull reports whether err means that the disk is full. It checks the error's text, because containerd does not
// report the cause in any other form.
func diskFull(err error) bool {
	text := err.Error()
	return strings.Contains(text, syscall.ENOSPC.Error()) || strings.Contains(text, syscall.EDQUOT.Error())
}

// isPermanent reports whether a pull that failed with err would fail again. In that case, its data need not be kept for
// a retry.
func isPermanent(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled:
		return false
	default:
		return true
	}
}
