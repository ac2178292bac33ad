package reach

import (
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Port returns the port on which a machine serves what its service says is on
// internal port service; 0 means $PORT. A machine on the host's network has the
// port that its $PORT says and no other, whatever the service calls it: the number
// may be another machine's there. CodeFailedPrecondition when it has none.
func Port(m *bourse.Machine, service int) (int, error) {
	if m.Config.ImageKind() == bourse.PollerImage {
		return 0, noWay(m)
	}
	if m.PrivateIP.IsValid() && service != 0 {
		return service, nil
	}
	if m.Boot.Port != 0 && !m.PrivateIP.IsValid() {
		return m.Boot.Port, nil
	}
	if own, err := strconv.Atoi(m.Config.Env[admit.EnvPort]); err == nil && own > 0 && own < 65536 {
		return own, nil
	}
	if service == 0 {
		return 0, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has no $PORT: name the internal_port of its service", m.ID)
	}
	return service, nil
}

func noWay(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is: there is no way to its ports", m.ID)
}
