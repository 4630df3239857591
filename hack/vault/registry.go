package main

import (
	"slices"

	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
)

// registry lists the linked plugins for Vault's plugin catalogue.
type registry struct {
	engines, logins map[string]logical.Factory
}

func (r registry) of(kind consts.PluginType) map[string]logical.Factory {
	switch kind {
	case consts.PluginTypeSecrets:
		return r.engines
	case consts.PluginTypeCredential:
		return r.logins
	}
	return nil
}

// Contains implements plugincatalog.BuiltinRegistry.
func (r registry) Contains(name string, kind consts.PluginType) bool {
	return r.of(kind)[name] != nil
}

// Get implements plugincatalog.BuiltinRegistry.
func (r registry) Get(name string, kind consts.PluginType) (func() (any, error), bool) {
	f := r.of(kind)[name]
	return func() (any, error) { return f, nil }, f != nil
}

// Keys implements plugincatalog.BuiltinRegistry.
func (r registry) Keys(kind consts.PluginType) []string {
	var names []string
	for name := range r.of(kind) {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// DeprecationStatus implements plugincatalog.BuiltinRegistry.
func (r registry) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}

// IsBuiltinEntPlugin implements plugincatalog.BuiltinRegistry.
func (r registry) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }
