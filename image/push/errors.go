package push

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"

	"github.com/bourse-dev/bourse"
)

// coded adds a code and a message for the user to an error that occurred during a push.
func coded(ctx context.Context, err error, ref bourse.ImageRef) error {
	name := bourse.ImageRef{Registry: ref.Registry, Repository: ref.Repository, Tag: ref.Tag}.String()
	if ctx.Err() != nil {
		return bourse.Errorf(bourse.CodeCanceled, "push %s: interrupted; repeat the push to send the rest: %w", name, context.Cause(ctx))
	}
	code := bourse.CodeInternal
	status, answered := errors.AsType[remoteerrors.ErrUnexpectedStatus](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization), answered && status.StatusCode == http.StatusUnauthorized:
		return bourse.Errorf(bourse.CodeUnauthorized, "push %s: %s requires credentials or refused them: %w", name, ref.Registry, err)
	case answered && status.StatusCode == http.StatusForbidden:
		return bourse.Errorf(bourse.CodeForbidden, "push %s: the credentials do not permit pushing: %w", name, err)
	case answered && status.StatusCode == http.StatusNotFound:
		code = bourse.CodeNotFound
	case answered && status.StatusCode < http.StatusInternalServerError:
		code = bourse.CodeInvalid
	case answered, network:
		code = bourse.CodeUnavailable
	}
	return bourse.Errorf(code, "push %s: %w", name, err)
}
