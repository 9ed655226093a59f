/* How the model writes a tool call: [[name {"argument": 1}]]. */

/* What opens and what closes a call, unless the settings say otherwise. */
#define OPEN_MARK "[["
#define CLOSE_MARK "]]"

/* What stands between the name of the tool and its arguments. */
#define NAME_END ' '
