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

// coded gives an error of a push a code, and words for who pushes.
func coded(ctx context.Context, err error, ref bourse.ImageRef) error {
	name := bourse.ImageRef{Registry: ref.Registry, Repository: ref.Repository, Tag: ref.Tag}.String()
	if ctx.Err() != nil {
		return bourse.Errorf(bourse.CodeCanceled, "push of %s: stopped; repeated, it sends only the rest: %w", name, context.Cause(ctx))
	}
	code := bourse.CodeInternal
	status, answered := errors.AsType[remoteerrors.ErrUnexpectedStatus](err)
	_, network := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, docker.ErrInvalidAuthorization), answered && status.StatusCode == http.StatusUnauthorized:
		return bourse.Errorf(bourse.CodeUnauthorized, "push of %s: %s wants other credentials than these, or any: %w", name, ref.Registry, err)
	case answered && status.StatusCode == http.StatusForbidden:
		return bourse.Errorf(bourse.CodeForbidden, "push of %s: these credentials may not push there: %w", name, err)
	case answered && status.StatusCode == http.StatusNotFound:
		code = bourse.CodeNotFound
	case answered && status.StatusCode < http.StatusInternalServerError:
		code = bourse.CodeInvalid
	case answered, network:
		code = bourse.CodeUnavailable
	}
	return bourse.Errorf(code, "push of %s: %w", name, err)
}
