/* How the model writes a tool call: <function=NAME>{"argument": 1}</function>, such as Llama 3 with tools of
 * its own. All else is the project that `mortise plugin new` makes. */

/* What opens and what closes a call, unless the settings say otherwise. */
#define OPEN_MARK "<function="
#define CLOSE_MARK "</function>"

/* What stands between the name of the tool and its arguments. */
#define NAME_END '>'
