package servertest_test

import (
	"fmt"
	"net"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestPortsInUse leaves a listener in a range that is no longer reserved, as a killed test does. No test may get that
// range.
func TestPortsInUse(t *testing.T) {
	var first int
	t.Run("killed", func(t *testing.T) { first, _ = servertest.Ports(t) }) // the end of the subtest releases the range
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", first+1))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if again, last := servertest.Ports(t); again <= first+1 && first+1 <= last {
		t.Errorf("got ports %d-%d, of which %d is in use", again, last, first+1)
	}
}
