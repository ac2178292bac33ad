package fabric

import "github.com/bourse-dev/bourse"

// checkOwner returns CodeInternal if a reply contains a machine or volume that belongs to another worker. Without this
// check, a worker could trick the broker into showing, changing or destroying other workers' objects.
func checkOwner(from *bourse.Member, reply any) error {
	err := func(id string, tag bourse.WorkerTag) error {
		if tag == from.Tag {
			return nil
		}
		return bourse.Errorf(bourse.CodeInternal, "worker %s sent a reply about %s, which belongs to another worker", from.ID, bourse.Quoted(id))
	}
	if r, ok := reply.(*bourse.Snapshot); ok {
		return err(string(r.ID), r.ID.Tag())
	}
	return eachObject(reply,
		func(m *bourse.Machine) error { return err(string(m.ID), m.ID.Tag()) },
		func(v *bourse.Volume) error { return err(string(v.ID), v.ID.Tag()) })
}

// eachObject calls one of the given functions for each machine and each volume in a reply. It stops at
// the first error.
func eachObject(reply any, machine func(*bourse.Machine) error, volume func(*bourse.Volume) error) error {
	switch r := reply.(type) {
	case *bourse.Machine:
		return machine(r)
	case *ActReply:
		if r.Machine.ID != "" { // the reply of some verbs has an empty machine
			return machine(&r.Machine)
		}
	case *WaitReply:
		if r.Machine != nil {
			return machine(r.Machine)
		}
	case *[]bourse.Machine:
		return each(*r, machine)
	case *bourse.Volume:
		return volume(r)
	case *[]bourse.Volume:
		return each(*r, volume)
	}
	return nil
}

func each[T any](list []T, check func(*T) error) error {
	for i := range list {
		if err := check(&list[i]); err != nil {
			return err
		}
	}
	return nil
}
