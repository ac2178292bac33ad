package cli

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func because(reason bourse.RefusalReason, resource, worker string) bourse.Refusal {
	return bourse.Refusal{Worker: bourse.WorkerID(worker), Reason: reason, Resource: resource}
}

// TestHintsAfterRefusals checks that a hint is given only for reasons that it helps with,
// and only once if several workers have the same reason.
func TestHintsAfterRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		refusals []bourse.Refusal
		want     []string
	}{
		"too little memory": {[]bourse.Refusal{because(bourse.RefusedResource, "memory", "gru-1")}, nil},
		"two workers with another label": {
			[]bourse.Refusal{because(bourse.RefusedLabel, "arch", "gru-1"), because(bourse.RefusedLabel, "arch", "gru-2")},
			[]string{"bourse worker show gru-1"},
		},
		"an image without a driver": {[]bourse.Refusal{because(bourse.RefusedImage, "nginx", "gru-1")}, nil},
		"no gateway":                {[]bourse.Refusal{because(bourse.RefusedImage, bourse.ImagePull, "gru-1")}, []string{"bourse serve worker --pull"}},
		"silence last": {
			[]bourse.Refusal{because(bourse.RefusedNoAnswer, "", "gru-1"), because(bourse.RefusedCordoned, "", "gru-2")},
			[]string{"bourse worker uncordon gru-2", "bourse worker list"},
		},
	} {
		if diff := cmp.Diff(tt.want, AfterRefusals(tt.refusals)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func replied(code bourse.Code, text string, refusals ...bourse.Refusal) error {
	return &bourse.Error{Code: code, Message: text, Err: &machinesapi.ReplyError{OrderID: "", RequestID: "r1", Refusals: refusals}}
}

// TestHintsOfErrors checks that errors other than refusals have only hints that are certain
// to help.
func TestHintsOfErrors(t *testing.T) {
	noReply := func(code bourse.Code, err error) error {
		return bourse.Errorf(code, "no answer: %w", &machinesapi.NoReplyError{Err: err})
	}
	for name, tt := range map[string]struct {
		err        error
		token, api string
		hints      int    // expected number of hints
		contains   string // text that the hints must contain
	}{
		"no token":            {err: replied(bourse.CodeUnauthorized, "no"), hints: 2, contains: "--token"},
		"wrong token":         {err: replied(bourse.CodeUnauthorized, "no"), token: "nope", hints: 1, contains: "http://api:1"},
		"another app's token": {err: replied(bourse.CodeForbidden, machinesapi.ForbiddenText), token: "app", hints: 1, contains: "--token"},
		"a read-only token":   {err: replied(bourse.CodeForbidden, machinesapi.ReadOnlyText), token: "app", hints: 1, contains: "--token"},
		"quota":               {err: replied(bourse.CodeForbidden, machinesapi.QuotaText+"2 machines")},
		"not from the API":    {err: bourse.Errorf(bourse.CodeUnauthorized, "NATS does not let us in")},
		"no broker":           {err: noReply(bourse.CodeUnavailable, syscall.ECONNREFUSED), hints: 2, contains: "bourse dev"},
		"no such host": {
			err:   noReply(bourse.CodeUnavailable, &net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}),
			hints: 1, contains: "--api",
		},
		"http to an https port":   {err: noReply(bourse.CodeInvalid, http.ErrSchemeMismatch), hints: 1, contains: "https://api:1"},
		"https to an http port":   {err: noReply(bourse.CodeInvalid, http.ErrSchemeMismatch), api: "https://api:1", hints: 1, contains: "http://api:1"},
		"an unknown CA":           {err: noReply(bourse.CodeUnavailable, x509.UnknownAuthorityError{}), hints: 1, contains: "--ca"},
		"a registry over http":    {err: bourse.Errorf(bourse.CodeInvalid, "wrong: %w", http.ErrSchemeMismatch)},
		"an unreachable registry": {err: bourse.Errorf(bourse.CodeInvalid, "no answer: %w", syscall.ECONNREFUSED)},
		"a conflict":              {err: replied(bourse.CodeConflict, "lease currently held")},
		"no worker there":         {err: replied(bourse.CodeInsufficient, "no worker accepts orders in mad")},
		"an unreachable region": {
			err:   replied(bourse.CodeUnavailable, "no worker answered", because(bourse.RefusedNoAnswer, "", "gru-1")),
			hints: 1, contains: "bourse worker list",
		},
		"internal": {err: replied(bourse.CodeInternal, "internal error")},
		"local":    {err: fmt.Errorf("open: %w", syscall.EBADF)},
		"canceled": {err: bourse.Errorf(bourse.CodeCanceled, "left: %w", context.Canceled)},
	} {
		s := &Shell{Env: Env{Getenv: func(string) string { return "" }}, token: tt.token, api: "http://api:1"}
		if tt.api != "" {
			s.api = tt.api
		}
		got := s.hintsOf(tt.err)
		if len(got) != tt.hints || !strings.Contains(strings.Join(got, "\n"), tt.contains) {
			t.Errorf("%s: hints %q, want %d with %q", name, got, tt.hints, tt.contains)
		}
	}
}
