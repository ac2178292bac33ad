package flycompat

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

func shownMachines(list []machinesapi.Machine) []object {
	out := make([]object, len(list))
	for i := range list {
		out[i] = shownMachine(&list[i])
	}
	return out
}

func shownMachine(m *machinesapi.Machine) object {
	return object{
		typename: "Machine", "id": m.ID, "name": m.Name, "state": m.State, "region": m.Region, "instanceId": m.InstanceID,
		"createdAt": m.CreatedAt, "updatedAt": m.UpdatedAt, "config": m.Config, "app": object{"name": m.App},
		"host": object{"id": m.Worker}, "ips": none(), "egressIpAddresses": none(), "events": none(),
	}
}

// machine resolves a machine by its ID, without its app, because clients use this field to find
// the machine's app.
func (c *caller) machine(ctx context.Context, args arguments) (any, error) {
	id := bourse.MachineID(args.text("machineId"))
	list, _, err := c.Machines(ctx, "", machinesapi.ListMachines{Summary: true})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(m machinesapi.Machine) bool { return m.ID == id })
	if at < 0 {
		return nil, bourse.Errorf(bourse.CodeNotFound, "Could not find Machine %s", bourse.Quoted(string(id)))
	}
	m := shownMachine(&list[at])
	m["app"] = resolver(func(ctx context.Context, _ arguments) (any, error) {
		a, err := c.appOf(ctx, list[at].App)
		if err != nil {
			return nil, err
		}
		return c.shownApp(&a), nil
	})
	return m, nil
}

func shownVolumes(list []machinesapi.Volume) []object {
	out := make([]object, len(list))
	for i := range list {
		out[i] = shownVolume(&list[i])
	}
	return out
}

func shownVolume(v *machinesapi.Volume) object {
	return object{
		typename: "Volume", "id": v.ID, "internalId": v.ID, "name": v.Name, "state": v.State, "region": v.Region, "sizeGb": v.SizeGB,
		"encrypted": v.Encrypted, "createdAt": v.CreatedAt, "app": object{"name": v.App}, "host": object{"id": v.Zone},
	}
}

// volume resolves a volume by its ID, without its app, because clients use this field to find the
// volume's app.
func (c *caller) volume(ctx context.Context, args arguments) (any, error) {
	id := bourse.VolumeID(args.text("id"))
	orgs, err := c.myOrganizations(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range orgs {
		list, _, err := c.Org(o.Slug).Volumes(ctx)
		if err != nil {
			return nil, err
		}
		for i := range list {
			if list[i].ID == id {
				return shownVolume(&list[i]), nil
			}
		}
	}
	return nil, bourse.Errorf(bourse.CodeNotFound, "Could not find Volume %s", bourse.Quoted(string(id)))
}
