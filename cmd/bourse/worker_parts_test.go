package main

import (
	"errors"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
)

// Machines of images never have the host's network because a network of their
// own could not be made: their orders are refused, or the worker does not start.
func TestTheHostsNetworkIsNoFallback(t *testing.T) {
	missing := bourse.Errorf(bourse.CodeUnavailable, "no nftables")
	for _, tt := range []struct {
		mode    serve.NetworkMode
		err     error
		refuses bool
	}{
		{serve.NetworkAuto, nil, false},
		{serve.NetworkAuto, missing, true},
		{serve.NetworkAuto, errors.New("broken"), false}, // the worker ends
		{serve.NetworkContainers, missing, false},        // the worker ends
		{serve.NetworkAll, missing, false},               // the worker ends
	} {
		err := lackOfNetwork(tt.mode, tt.err)
		if (err != nil) != tt.refuses || err != nil && !errors.Is(err, missing) {
			t.Errorf("mode %s, %v: refuses images with %v, want %t", tt.mode, tt.err, err, tt.refuses)
		}
	}
}
