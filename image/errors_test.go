package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	remoteerrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
)

func TestCoded(t *testing.T) {
	status := func(code int) error { return fmt.Errorf("get: %w", remoteerrors.ErrUnexpectedStatus{StatusCode: code}) }
	for name, tc := range map[string]struct {
		err  error
		want bourse.Code
	}{
		"ours":                      {fmt.Errorf("pull: %w", bourse.Errorf(bourse.CodeInsufficient, "no room")), bourse.CodeInsufficient},
		"denied":                    {status(http.StatusForbidden), bourse.CodeNotFound},
		"wrong credentials":         {fmt.Errorf("denied: %w", docker.ErrInvalidAuthorization), bourse.CodeNotFound},
		"not in the registry":       {&registryError{errdefs.ErrNotFound}, bourse.CodeNotFound},
		"not in containerd":         {errdefs.ErrNotFound, bourse.CodeUnavailable},
		"teapot":                    {status(http.StatusTeapot), bourse.CodeInvalid},
		"too many requests":         {status(http.StatusTooManyRequests), bourse.CodeUnavailable},
		"bad gateway":               {status(http.StatusBadGateway), bourse.CodeUnavailable},
		"stalled":                   {fmt.Errorf("read: %w", errStalled), bourse.CodeUnavailable},
		"stopped":                   {errClosed, bourse.CodeUnavailable},
		"canceled":                  {context.Canceled, bourse.CodeUnavailable},
		"late":                      {context.DeadlineExceeded, bourse.CodeUnavailable},
		"refused":                   {fmt.Errorf("dial: %w", syscall.ECONNREFUSED), bourse.CodeUnavailable},
		"broken off":                {fmt.Errorf("copy: %w", io.ErrUnexpectedEOF), bourse.CodeUnavailable},
		"containerd is unavailable": {fmt.Errorf("write: %w", errdefs.ErrUnavailable), bourse.CodeUnavailable},
		"other digest":              {fmt.Errorf("commit: %w", errdefs.ErrFailedPrecondition), bourse.CodeInvalid},
		"fewer bytes":               {&registryError{errShort}, bourse.CodeInvalid},
		"broken layer":              {&layerError{errors.New("no archive")}, bourse.CodeInvalid},
		"layer fills the disk":      {&layerError{errors.New("write: " + syscall.ENOSPC.Error())}, bourse.CodeInsufficient},
		"something else":            {errors.New("what"), bourse.CodeUnavailable},
		"nothing":                   {nil, ""},
		"layer fills the quota":     {&layerError{errors.New("write: " + syscall.EDQUOT.Error())}, bourse.CodeInsufficient},
	} {
		if got := bourse.CodeOf(withCode(tc.err, "web")); got != tc.want {
			t.Errorf("%s: code %q, want %q", name, got, tc.want)
		}
	}
}
