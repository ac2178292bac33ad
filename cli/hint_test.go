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

// TestEveryCodeAndReasonHasAHint, or is said to need none.
func TestEveryCodeAndReasonHasAHint(t *testing.T) {
	for _, code := range bourse.Codes() {
		if hintOfCode[code] == nil {
			t.Errorf("code %s has no row", code)
		}
	}
	if len(hintOfCode) != len(bourse.Codes()) {
		t.Errorf("%d rows for %d codes", len(hintOfCode), len(bourse.Codes()))
	}
	for _, reason := range bourse.RefusalReasons() {
		if _, ok := hintOfReason[reason]; !ok {
			t.Errorf("reason %s has no row", reason)
		}
	}
	if len(hintOfReason) != len(bourse.RefusalReasons()) {
		t.Errorf("%d rows for %d reasons", len(hintOfReason), len(bourse.RefusalReasons()))
	}
}

func refused(resource string) []bourse.Refusal {
	return []bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: resource, Wanted: 2}}
}

func because(reason bourse.RefusalReason, resource string) []bourse.Refusal {
	return []bourse.Refusal{{Worker: "gru-1", Reason: reason, Resource: resource}}
}

// TestHintsAfterRefusals: what is suggested is about what was refused, and
// about nothing else.
func TestHintsAfterRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		refusals []bourse.Refusal
		want     []string
	}{
		"memory":       {refused("memory"), []string{"a smaller --vm-memory, another --region, or later"}},
		"cpu":          {refused("cpu"), []string{"fewer --vm-cpus, or shared ones (--vm-cpu-kind), another --region, or later"}},
		"volume":       {refused("disk"), []string{"less disk (--size of a volume, --rootfs-size of a machine), another --region, or later"}},
		"gpu":          {refused("gpu.a10"), []string{"fewer --vm-gpus, another --vm-gpu-kind, another --region, or later"}},
		"countable":    {refused("slots"), []string{"a smaller --require slots=…, another --region, or later"}},
		"no poller":    {refused("pollers"), []string{"a host that fetches its work (docs/pull.md): none waits at the gateway, or none with room for this"}},
		"no place":     {refused("task resize"), []string{"a machine that is warm for it: bourse machine run --task resize IMAGE, or later, when a place is free"}},
		"image's room": {refused("images"), []string{"a smaller image, or room for it: bourse image prune"}},
		"port":         {refused("ports"), []string{"a port of the machine's own (--env PORT=…), another --region, or later"}},
		"label":        {because(bourse.RefusedLabel, "arch"), []string{"another --require arch=…; what a worker has: bourse worker show gru-1"}},
		"no label": {
			because(bourse.RefusedUnknown, "zone"),
			[]string{"another --region, or without --require zone=…; what a worker has: bourse worker show gru-1"},
		},
		"no gpu": {
			because(bourse.RefusedUnknown, "gpu.h100"),
			[]string{"another --region, or without --vm-gpu-kind; what a worker has: bourse worker show gru-1"},
		},
		"no task":    {because(bourse.RefusedUnknown, "task resize"), []string{"a machine that is warm for it: bourse machine run --task resize IMAGE"}},
		"no gateway": {because(bourse.RefusedImage, bourse.ImagePull), []string{"a gateway, for machines of image pull: bourse serve worker --pull"}},
		"no host":    {because(bourse.RefusedImage, bourse.ImageHost), []string{"a worker that runs commands of its host: bourse serve worker --allow-host"}},
		"no image": {
			because(bourse.RefusedImage, "nginx"),
			[]string{"is the image's name right? Workers that run images have containerd: bourse serve worker --help"},
		},
		"silence":   {because(bourse.RefusedNoAnswer, ""), []string{"see which workers answer: bourse worker list"}},
		"overtaken": {because(bourse.RefusedOvertaken, ""), nil},
		"two resources of one worker": {
			[]bourse.Refusal{{Worker: "gru-1", Reason: bourse.RefusedResource, Resource: "memory", Also: []bourse.Shortage{{Resource: "cpu"}}}},
			[]string{"a smaller --vm-memory, another --region, or later", "fewer --vm-cpus, or shared ones (--vm-cpu-kind), another --region, or later"},
		},
		"the most frequent first, silence last, one line for many workers": {
			[]bourse.Refusal{
				{Worker: "a", Reason: bourse.RefusedNoAnswer},
				{Worker: "b", Reason: bourse.RefusedNoAnswer},
				{Worker: "c", Reason: bourse.RefusedNoAnswer},
				{Worker: "d", Reason: bourse.RefusedResource, Resource: "memory"},
				{Worker: "e", Reason: bourse.RefusedUnknown, Resource: "zone"},
				{Worker: "f", Reason: bourse.RefusedUnknown, Resource: "zone"},
			},
			[]string{
				"another --region, or without --require zone=…; what a worker has: bourse worker show e",
				"a smaller --vm-memory, another --region, or later",
				"see which workers answer: bourse worker list",
			},
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

// TestHintsOfErrors: the words and the hint of errors that are no refusals.
func TestHintsOfErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		err         error
		token, api  string
		text, hints string
	}{
		"no token": {
			err:   replied(bourse.CodeUnauthorized, "Authenticate: token validation error"),
			text:  "the API wants a token, and none was given",
			hints: "give one with BOURSE_API_TOKEN or --token",
		},
		"wrong token": {
			err: replied(bourse.CodeUnauthorized, "Authenticate: token validation error"), token: "nope",
			text:  "the token is not known to this broker",
			hints: "another one with BOURSE_API_TOKEN or --token; is --api the right cluster? (now http://api:1)",
		},
		"another app's token": {
			err: replied(bourse.CodeForbidden, machinesapi.ForbiddenText), token: "app",
			text:  "the token may not use this app",
			hints: "one that may, with BOURSE_API_TOKEN or --token",
		},
		"an app's token on worker list": {
			err: replied(bourse.CodeForbidden, machinesapi.ClusterOnlyText), token: "app",
			text:  "unauthorized: this takes a token of the whole cluster, and yours is of an organization or of apps",
			hints: "one that may, with BOURSE_API_TOKEN or --token",
		},
		"quota": {
			err:   replied(bourse.CodeForbidden, machinesapi.QuotaText+`app "shop" may have 2 machines`),
			text:  `quota exceeded: app "shop" may have 2 machines`,
			hints: "destroy what is not needed, or ask who runs the cluster for more (serve broker --quotas)",
		},
		"a refusal that is not the API's": {err: bourse.Errorf(bourse.CodeUnauthorized, "NATS does not let us in"), text: "NATS does not let us in"},
		"no broker": {
			err:   bourse.Errorf(bourse.CodeUnavailable, "no answer: %w", &machinesapi.NoReplyError{Err: syscall.ECONNREFUSED}),
			text:  "no answer: connection refused",
			hints: "is it running? start a cluster with: bourse dev\nor name another API with --api or BOURSE_API (now http://api:1)",
		},
		"no such host": {
			err:   bourse.Errorf(bourse.CodeUnavailable, "no answer: %w", &machinesapi.NoReplyError{Err: &net.DNSError{Err: "no such host", Name: "api", IsNotFound: true}}),
			text:  "no answer: lookup api: no such host",
			hints: "is the name right? --api or BOURSE_API (now http://api:1)",
		},
		"http to an https port": {
			err: bourse.Errorf(bourse.CodeInvalid, "wrong: %w", &machinesapi.NoReplyError{Err: http.ErrSchemeMismatch}), text: "wrong: " + http.ErrSchemeMismatch.Error(),
			hints: "--api or BOURSE_API with https://api:1",
		},
		"https to an http port": {
			err: bourse.Errorf(bourse.CodeInvalid, "wrong: %w", &machinesapi.NoReplyError{Err: http.ErrSchemeMismatch}), text: "wrong: " + http.ErrSchemeMismatch.Error(),
			api: "https://api:1", hints: "--api or BOURSE_API with http://api:1",
		},
		"a CA that is not known": {
			err: bourse.Errorf(bourse.CodeUnavailable, "no: %w", &machinesapi.NoReplyError{Err: x509.UnknownAuthorityError{}}), text: "no: x509: certificate signed by unknown authority",
			hints: "name the CA that the API's certificate is of with --ca FILE or BOURSE_CA",
		},
		"a registry that speaks http": {
			err: bourse.Errorf(bourse.CodeInvalid, "wrong: %w", http.ErrSchemeMismatch), text: "wrong: " + http.ErrSchemeMismatch.Error(),
		},
		"a registry that is down": {
			err: bourse.Errorf(bourse.CodeInvalid, "no answer: %w", syscall.ECONNREFUSED), text: "no answer: connection refused",
		},
		"an address in use": {
			err:   bourse.Errorf(bourse.CodeConflict, "--api: %w", syscall.EADDRINUSE),
			text:  "--api: address already in use",
			hints: "another port, or end the program that listens on this one",
		},
		"changed by another request": {
			err: replied(bourse.CodeConflict, "lease currently held"), text: "lease currently held",
			hints: "look at it again, then repeat: another request has changed it, or holds its lease",
		},
		"no worker there": {
			err: replied(bourse.CodeInsufficient, "no worker takes orders in mad"), text: "no worker takes orders in mad",
			hints: "another --region, or later; who answers: bourse worker list",
		},
		"a region that is down": {
			err:   replied(bourse.CodeUnavailable, "no worker answered", because(bourse.RefusedNoAnswer, "")...),
			text:  "no worker answered",
			hints: "see which workers answer: bourse worker list\ntry again in a moment: nothing happened",
		},
		"our fault": {err: replied(bourse.CodeInternal, "internal error"), text: "internal error: request r1", hints: "the server's log has the cause, of request r1"},
		"ours here": {err: fmt.Errorf("open: %w", syscall.EBADF), text: "open: bad file descriptor"},
		"canceled":  {err: bourse.Errorf(bourse.CodeCanceled, "left: %w", context.Canceled), text: "left: context canceled"},
	} {
		s := &Shell{Env: Env{Getenv: func(string) string { return "" }}, token: tt.token, api: "http://api:1"}
		if tt.api != "" {
			s.api = tt.api
		}
		if got := strings.Join(s.errorLines(tt.err), "\n"); got != tt.text {
			t.Errorf("%s: says %q, want %q", name, got, tt.text)
		}
		if got := strings.Join(s.hintsOf(tt.err), "\n"); got != tt.hints {
			t.Errorf("%s: hints %q, want %q", name, got, tt.hints)
		}
	}
}
