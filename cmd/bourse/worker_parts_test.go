package main

import (
	"errors"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli/serve"
)

// TestHostNetworkIsNoFallback checks that machines with images never fall back to the host's network if their own
// network could not be created. Either their orders are refused, or the worker does not start.
func TestHostNetworkIsNoFallback(t *testing.T) {
	missing := bourse.Errorf(bourse.CodeUnavailable, "no nftables")
	for _, tt := range []struct {
		mode    serve.NetworkMode
		err     error
		refuses bool
	}{
		{serve.NetworkAuto, nil, false},
		{serve.NetworkAuto, missing, true},
		{serve.NetworkAuto, errors.New("broken"), false}, // the worker does not start
		{serve.NetworkContainers, missing, false},        // the worker does not start
		{serve.NetworkAll, missing, false},               // the worker does not start
	} {
		err := whyNoNetwork(tt.mode, tt.err)
		if (err != nil) != tt.refuses || err != nil && !errors.Is(err, missing) {
			t.Errorf("mode %s, %v: got reason %v for refusing images, want a reason: %t", tt.mode, tt.err, err, tt.refuses)
		}
	}
}
