// Package workspace decides which files are copied into a sandbox's workspace, and which files of the workspace are not
// copied to the host under their own names.
//
// A step may write any file into its workspace. Programs on the host execute some files only because of
// their place: git runs its hooks and the commands in its configuration, a shell loads .envrc, an editor runs
// its tasks, and Custody runs the commands of custody.yaml. A step that could replace one of these on the host
// would escape the sandbox with the next git status. Such files are therefore copied out under another name.
package workspace
