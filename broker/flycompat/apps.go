package flycompat

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// appMemory has the apps that one query has asked for: clients ask for several
// things of one under different aliases.
type appMemory map[bourse.AppName]object

// find finds an app. Codes: not_found, with the text that clients look for.
func (m *appMemory) find(ctx context.Context, c *caller, name bourse.AppName) (any, error) {
	if known, ok := (*m)[name]; ok {
		return known, nil
	}
	a, err := c.appOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if *m == nil {
		*m = appMemory{}
	}
	(*m)[name] = c.shownApp(&a)
	return (*m)[name], nil
}

func (c *caller) appOf(ctx context.Context, name bourse.AppName) (machinesapi.App, error) {
	if name == "" {
		return machinesapi.App{}, bourse.Errorf(bourse.CodeInvalid, "the query names no app")
	}
	if name.Validate() != nil {
		return machinesapi.App{}, bourse.Errorf(bourse.CodeNotFound, "Could not find App %s", bourse.Quoted(string(name)))
	}
	a, err := c.App(ctx, name)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		err = &bourse.Error{Code: bourse.CodeNotFound, Message: "Could not find App " + bourse.Quoted(string(name)), Err: err}
	}
	return a, err
}

// nameAvailable reports whether an app of a name may be made.
func (c *caller) nameAvailable(ctx context.Context, args arguments) (any, error) {
	_, err := c.appOf(ctx, bourse.AppName(args.text("name")))
	code := bourse.CodeOf(err)
	if code == bourse.CodeNotFound || code == bourse.CodeForbidden {
		err = nil
	}
	return code == bourse.CodeNotFound, err
}

// maxPage bounds how many apps one page has.
const maxPage = 1000

// apps finds a page of the apps that the caller may use, by name. No app has a
// role.
func (c *caller) apps(ctx context.Context, args arguments) (any, error) {
	if args.text("role") != "" {
		return none(), nil
	}
	all, err := c.Apps(ctx, args.text("organizationId"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y machinesapi.App) int { return cmp.Compare(x.Name, y.Name) })
	after := bourse.AppName(args.text("after"))
	all = slices.DeleteFunc(all, func(a machinesapi.App) bool { return a.Name <= after })
	page := all[:min(len(all), max(1, args.count("first", maxPage, maxPage)))]
	list := make([]object, len(page))
	for i := range page {
		list[i] = c.shownApp(&page[i])
		list[i]["currentRelease"] = nil // one question for each app would be many
	}
	out := nodes(list)
	if len(page) < len(all) {
		out["pageInfo"] = object{"hasNextPage": true, "endCursor": page[len(page)-1].Name}
	}
	return out, nil
}

// shownApp is an app. Its id is its name, as clients expect.
func (c *caller) shownApp(a *machinesapi.App) object {
	name := a.Name
	deployed := a.Status != machinesapi.AppPending
	return object{
		typename: "App", "id": name, "internalNumericId": a.NumericID, "name": name, "hostname": string(name) + ".internal", "cnameTarget": "",
		"appUrl": nil, "deployed": deployed, "network": a.Network, "status": a.Status, "platformVersion": "machines", "role": nil,
		"organization": shownOrganization(a.Organization), "version": 0,
		"services": []any{}, "sharedIpAddress": "", "ipAddresses": none(), "egressIpAddresses": none(), "addOns": none(),
		"certificates": none(), "secrets": []any{}, "currentLock": nil, "imageDetails": object{},
		"currentRelease":            finder(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }),
		"currentReleaseUnprocessed": finder(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }),
		"config":                    finder(func(ctx context.Context, _ arguments) (any, error) { return c.lastRelease(ctx, name) }), // it has the definition
		"releases":                  finder(func(ctx context.Context, args arguments) (any, error) { return c.releasesOf(ctx, name, args) }),
		"releasesUnprocessed":       finder(func(ctx context.Context, args arguments) (any, error) { return c.releasesOf(ctx, name, args) }),
		"image":                     finder(func(ctx context.Context, args arguments) (any, error) { return c.image(ctx, name, args.text("ref")) }),
		"machines": finder(func(ctx context.Context, _ arguments) (any, error) {
			list, _, err := c.Machines(ctx, name, machinesapi.ListMachines{})
			return nodes(shownMachines(list)), err
		}),
		"volumes": finder(func(ctx context.Context, _ arguments) (any, error) {
			list, _, err := c.Volumes(name).List(ctx)
			return nodes(shownVolumes(list)), err
		}),
		"regions": finder(func(ctx context.Context, _ arguments) (any, error) {
			all, err := c.platform(ctx, nil)
			if err != nil {
				return nil, err
			}
			return all.(object)["regions"], nil
		}),
	}
}

// image finds the image that a reference means: null for one that is not found,
// which clients say themselves. Its size is not known before it is pulled.
func (c *caller) image(ctx context.Context, app bourse.AppName, ref string) (any, error) {
	found, err := c.Client.AppImages(app).Resolve(ctx, ref)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil //nolint:nilnil // null
	}
	if err != nil {
		return nil, err
	}
	if name := machinesapi.ImageName(ref); bourse.KindOfImage(name) != bourse.RegistryImage {
		ref = name
	}
	return object{
		typename: "Image", "id": cmp.Or(found.Digest, ref), "digest": found.Digest, "ref": ref, "compressedSize": "0", "compressedSizeFull": "0", "manifest": nil,
	}, nil
}
