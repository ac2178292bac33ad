package reach

import "github.com/bourse-dev/bourse"

func noWay(m *bourse.Machine) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is: there is no way to its ports", m.ID)
}
