package serve

import (
	"errors"
	"net"
	"os"

	"github.com/bourse-dev/bourse"
)

// notifySocket is where systemd waits for what a unit of Type=notify has to
// say, see sd_notify(3).
const notifySocket = "NOTIFY_SOCKET"

// notifySystemd reports to systemd that the server serves, if that has started
// it and asks.
func notifySystemd() error {
	name := os.Getenv(notifySocket)
	if name == "" {
		return nil
	}
	_ = os.Unsetenv(notifySocket) // what the server starts from now on has nothing to say there
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte("READY=1"))
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "%s: %w", notifySocket, err)
	}
	return nil
}
